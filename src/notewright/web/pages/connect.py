"""The page for connecting clients: their configurations for this server, and access tokens."""

import time
from dataclasses import replace

from starlette.responses import Response

from notewright.accounts.base import Grant, Token
from notewright.config.clients import CLIENTS, SECRET, TOKEN_VARIABLE
from notewright.config.settings import SURFACES, TOKEN_USES, normalize_surface
from notewright.engine.library import new_token
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, Unavailable
from notewright.surfaces.http_status import STATUS
from notewright.web.addresses import url_of, workspace_url
from notewright.web.frame import PageRequest

DAYS = {"30": 30, "90": 90, "365": 365}  # without one it does not expire
MAX_PATTERNS = 100
ABOUT = {
    "notes": "our own: search, read, edit, history, undo",
    "cairn": "the tools of Cairn",
    "lens": "the tools of Lens",
    "obsidian": "the tools of obsidian_mcp",
    "second_brain": "the tools of Second Brain",
    "octarine": "the tools of Octarine",
}


def snippets(address: str, *, token: bool) -> list[tuple[str, str, str]]:
    """The configuration of each known client for this server over HTTP: its name, what to do with the text, and the
    text. With `token` it has an access token, in the place of `YOUR_TOKEN`."""
    header = f' \\\n  --header "Authorization: Bearer {SECRET}"' if token else ""
    found = [("Claude Code", "Run this:", f"claude mcp add --transport http notewright {address}{header}")]
    for client in (client for name, client in CLIENTS.items() if name != "claude-code"):
        entry = client.reached(address, token)
        variable = f", with the token in the environment variable {TOKEN_VARIABLE}"
        where = (client.where or client.path) + (variable if TOKEN_VARIABLE in entry.values() else "")
        found.append((client.label, f"Into {where}:", client.text("notewright", entry)))
    plain = f"{address}\nAuthorization: Bearer {SECRET}" if token else address
    return [*found, ("Any other MCP client", "Add a server of the kind “streamable HTTP”:", plain)]


def connect(request: PageRequest, status: int = 200, **values: object) -> Response:
    who = request.signed_in.principal
    workspaces = request.library.workspaces()
    surfaces = [name for name in SURFACES if who.uses(name)]
    surface = normalize_surface(request.query.get("surface", ""))
    surface = surface if surface in surfaces else next(iter(surfaces), "")
    chosen = next((ws for ws in workspaces if ws.id == request.query.get("workspace")), None)
    path = workspace_url(chosen, "mcp", surface).removeprefix(url_of("")) if chosen else f"/mcp/{surface}"
    address = request.base + path
    shown: dict[str, object] = {
        "made": None, "problem": None, "said": {}, "about": ABOUT, "surfaces": surfaces, "surface": surface,
        "workspaces": workspaces, "chosen": chosen, "address": address,
        "snippets": snippets(address, token=who.kind != "local") if surface else [],
        "may": replace(who.grant, hide=("what is hidden from you",) if who.grant.hide else ()).words,
        "tokens": _list_tokens(request) if who.owner else None,
        "all_surfaces": TOKEN_USES,
        "live": _live_addresses(request),
    }  # fmt: skip
    return request.page("connect.html", status, **shown | values)


def _live_addresses(request: PageRequest) -> list[tuple[str, str, str | None]]:
    """Each live workspace with its address for Yjs clients, and its folder document, for callers from whom nothing is
    hidden."""
    base = f"ws{request.base.removeprefix('http')}"
    shown = [ws for ws in request.library.workspaces() if ws.live is not None]
    return [
        (ws.name, f"{base}{workspace_url(ws, 'live').removeprefix(url_of(''))}/", _folder_document_id(request, ws))
        for ws in shown
    ]


def _folder_document_id(request: PageRequest, ws: Workspace) -> str | None:
    if request.site.hosts is None or ws.access.hide:
        return None
    try:
        return request.run_in_loop(request.site.hosts.fetch_names(ws, ())).folder_id
    except Unavailable:  # no process hosts the documents now
        return None


def _list_tokens(request: PageRequest) -> list[tuple[Token, str]]:
    """All tokens with their states, the valid ones first."""
    now = time.time()
    found = [(one, _token_state(one, now)) for one in request.site.registry.tokens()]
    return sorted(found, key=lambda pair: (pair[1] != "good", -pair[0].created))


def _token_state(token: Token, now: float) -> str:
    return "good" if token.is_valid(now) else "revoked" if token.revoked is not None else "expired"


# ---- tokens -------------------------------------------------------------------------------------------


def add_token(request: PageRequest) -> Response:
    """Make a token; this page alone shows its secret."""
    now, name = time.time(), request.form_value("name").strip()
    days = DAYS.get(request.form_value("days"))
    try:
        expires = now + days * 86_400 if days else None
        secret = new_token(request.site.registry, name, _parse_grant(request), now=now, expires=expires)
    except (Invalid, Exists) as problem:
        return connect(request, STATUS[problem.code], problem=problem, said=request.form)
    request.site.operations.audit.record_admin("token_added", user=request.signed_in.principal.user, token=name)
    return connect(request, made=(name, secret))


def _parse_grant(request: PageRequest) -> Grant:
    """The grant that the form asks for. Nothing ticked is everything."""
    known = {ws.id for ws in request.library.workspaces()}
    workspaces = tuple(request.form.get("workspaces", ()))
    surfaces = tuple(request.form.get("surfaces", ()))
    if not known.issuperset(workspaces) or not set(surfaces) <= set(TOKEN_USES):
        raise Invalid("there is no such workspace or surface", hint="open the page again", what="workspaces")
    return Grant(
        workspaces=workspaces or None,
        surfaces=surfaces or None,
        read_only=bool(request.form_value("read_only")),
        hide=_parse_patterns(request.form_value("hide")),
        write_under=_parse_patterns(request.form_value("write_under")) or ("**",),
    )


def _parse_patterns(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if len(found) > MAX_PATTERNS:
        raise Invalid(f"more than {MAX_PATTERNS} patterns are too many", hint="use folders with /**", what="hide")
    return found


def revoke_token(request: PageRequest) -> Response:
    name = request.form_value("name")
    if not request.site.registry.revoke(name, time.time()):
        raise NotFound(f"there is no token {name!r} to revoke", hint="it may be revoked already", what="token")
    request.site.operations.audit.record_admin("token_revoked", user=request.signed_in.principal.user, token=name)
    return request.redirect(url_of("/connect#tokens"))
