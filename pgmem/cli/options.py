"""The options that several commands share, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        help="A libpq URL. Without it PGMEM_DATABASE_URL counts; without that, the embedded server.",
        show_default=False,
        metavar="URL",
    ),
]
Schema = Annotated[
    str | None, typer.Option(help="The schema that holds the tables: PGMEM_SCHEMA, else pgmem.", show_default=False, metavar="NAME")
]
Tenant = Annotated[str, typer.Option(help="Who owns the session.", metavar="NAME")]
NamespaceName = Annotated[str, typer.Option("--namespace", help="The memory space inside the session.", metavar="NAME")]
SessionKey = Annotated[str, typer.Argument(metavar="SESSION", help="The session's key; `pgmem sessions` lists them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
