"""Whole workspaces as zip files, out and in."""

from typing import Any

from notewright.api import schemas
from notewright.api.operation import Operation, Pieces
from notewright.api.request import ApiRequest
from notewright.api.schemas import flag, given, text
from notewright.engine.transfer.export import zip_pieces
from notewright.engine.transfer.import_files import import_files


def export_zip(asked: ApiRequest) -> Pieces:
    """Made as it is sent."""
    ws = asked.workspace()
    asked.audited("export", workspace=ws.id)
    return zip_pieces(ws)


def import_zip(asked: ApiRequest) -> dict[str, Any]:
    ws, query = asked.workspace(), asked.query
    assert asked.upload is not None
    report = import_files(
        ws,
        asked.upload,
        into=query.get("into", ""),
        overwrite=query.get("overwrite", False),
        dry_run=query.get("dry_run", False),
    )
    if not report.dry_run:
        asked.audited("import", workspace=ws.id, created=len(report.created), replaced=len(report.replaced))
    return report.record()


def operations(most_bytes: int) -> tuple[Operation, ...]:
    """`most_bytes`: what one request may have."""
    return (
        Operation(
            "GET",
            "/api/v1/workspaces/{id}/export.zip",
            "read",
            "Every file you may see, as a zip file",
            export_zip,
            None,
        ),
        Operation(
            "POST",
            "/api/v1/workspaces/{id}/import",
            "write",
            "Bring in the files of a zip file",
            import_zip,
            schemas.IMPORTED,
            given(
                into=text("The folder they come into; without it, the top", most=4096),
                overwrite=flag("Replace files that are there"),
                dry_run=flag("Only say what would happen"),
            ),
            uploads=True,
            most_bytes=most_bytes,
        ),
    )
