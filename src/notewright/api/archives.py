"""Whole workspaces as zip files, out and in."""

from typing import Any

from notewright.api.operation import OperationTable, Pieces
from notewright.api.request import ApiRequest
from notewright.api.schemas import DRY_RUN, IMPORTED, flag, given, text
from notewright.engine.transfer.export import zip_pieces
from notewright.engine.transfer.import_files import import_files

HERE = "/api/v1/workspaces/{id}"
operations = OperationTable()


@operations.add(f"GET {HERE}/export.zip", "read", "Every file you may see, as a zip file", None)
def export_zip(asked: ApiRequest) -> Pieces:
    """Made as it is sent."""
    ws = asked.workspace()
    asked.audited("export", workspace=ws.id)
    return zip_pieces(ws)


_HOW = given(
    into=text("The folder they come into; without it, the top", most=4096),
    overwrite=flag("Replace files that are there"),
    dry_run=DRY_RUN,
)


@operations.add(f"POST {HERE}/import", "write", "Bring in the files of a zip file", IMPORTED, _HOW, uploads=True)
def import_zip(asked: ApiRequest) -> dict[str, Any]:
    ws = asked.workspace()
    assert asked.upload is not None
    report = import_files(ws, asked.upload, **asked.query)
    if not report.dry_run:
        asked.audited("import", workspace=ws.id, created=len(report.created), replaced=len(report.replaced))
    return report.record()
