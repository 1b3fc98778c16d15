"""Who may see and change what: decided here, once, for every question the engine is asked."""

from collections.abc import Callable
from functools import cached_property

from notewright.errors import Forbidden, NotFound, ReadOnly
from notewright.index.base import PathTest, Visibility
from notewright.lazy_dataclass import dataclass, field
from notewright.notes.glob import compile_glob
from notewright.notes.path import NotePath


@dataclass(frozen=True)
class Access:
    """The rules of a workspace narrowed by those of the caller. Globs are relative to the workspace."""

    read_only: bool = False
    hide: tuple[str, ...] = ()  # absent from every answer
    write_under: tuple[str, ...] = field(default=("**",))  # agents may write only here
    outer: "Access | None" = None  # rules that hold as well for what is written

    @cached_property
    def visibility(self) -> Visibility:
        """What is hidden, as a value for the index; it holds no names that begin with a dot."""
        return Visibility(self.hide)

    @cached_property
    def path_test(self) -> PathTest | None:
        """Does a caller see this path? None: every one that the index holds."""
        return self.visibility.test

    @cached_property
    def _writable(self) -> tuple[Callable[[str], bool], ...]:
        return tuple(compile_glob(pattern) for pattern in self.write_under)

    def sees(self, path: str) -> bool:
        """Dot segments are outside the workspace for everybody; hidden notes for this caller."""
        if path.startswith(".") or "/." in path:
            return False
        return self.path_test is None or self.path_test(path)

    def may_see(self, path: NotePath) -> None:
        if not self.sees(path):
            raise NotFound(f"there is no {path}", what="note", path=path)

    def may_write(self, path: NotePath) -> None:
        """Refused in words that do not tell whether something hidden is there."""
        if self.outer is not None:
            self.outer.may_write(path)
        if self.read_only:
            raise ReadOnly("this workspace is read-only", hint="ask its owner to allow writing", path=path)
        if not self.sees(path) or not any(allows(path) for allows in self._writable):
            raise Forbidden(f"writing to {path} is not allowed", hint=self._where(), path=path, by="rule")

    @property
    def writes_all(self) -> bool:
        """Nothing is forbidden to this caller that could be allowed to anybody."""
        outer_all = self.outer is None or self.outer.writes_all
        return outer_all and not self.read_only and not self.hide and self.write_under == ("**",)

    def _where(self) -> str:
        if self.write_under == ("**",):
            return "names beginning with a dot and hidden folders are out of reach"
        return "write under " + " or ".join(self.write_under)

    def narrowed(self, other: "Access") -> "Access":
        """Both sets of rules at once."""
        return Access(self.read_only or other.read_only, self.hide + other.hide, other.write_under, outer=self)
