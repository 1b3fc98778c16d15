"""Who may see and change what: the one place that decides it for the whole engine."""

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
    outer: "Access | None" = None  # rules that also apply to writing

    @cached_property
    def visibility(self) -> Visibility:
        """What is hidden, as a value for the index; it holds no names that begin with a dot."""
        return Visibility(self.hide)

    @cached_property
    def path_test(self) -> PathTest | None:
        """Whether a caller sees a path; None: every path that the index holds."""
        return self.visibility.test

    @cached_property
    def _writable(self) -> tuple[Callable[[str], bool], ...]:
        return tuple(compile_glob(pattern) for pattern in self.write_under)

    def sees(self, path: str) -> bool:
        """Whether this caller sees a path. Dot segments are outside the workspace for everybody."""
        if path.startswith(".") or "/." in path:
            return False
        return self.path_test is None or self.path_test(path)

    def may_see(self, path: NotePath) -> None:
        if not self.sees(path):
            raise NotFound(f"there is no {path}", what="note", path=path)

    def may_write(self, path: NotePath) -> None:
        """Raise Forbidden or ReadOnly, in words that do not tell whether something hidden is there."""
        if self.outer is not None:
            self.outer.may_write(path)
        if self.read_only:
            raise ReadOnly("this workspace is read-only", hint="ask its owner to allow writing", path=path)
        if not self.sees(path) or not any(allows(path) for allows in self._writable):
            hint = "write under " + " or ".join(self.write_under)
            if self.write_under == ("**",):
                hint = "names beginning with a dot and hidden folders are out of reach"
            raise Forbidden(f"writing to {path} is not allowed", hint=hint, path=path, by="rule")

    @property
    def writes_all(self) -> bool:
        """Whether this caller may write wherever anybody may."""
        outer_all = self.outer is None or self.outer.writes_all
        return outer_all and not self.read_only and not self.hide and self.write_under == ("**",)

    def narrowed(self, other: "Access") -> "Access":
        """These rules, restricted by the others."""
        return Access(self.read_only or other.read_only, self.hide + other.hide, other.write_under, outer=self)
