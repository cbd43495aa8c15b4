"""The state tree, the audit views and the roles."""

import re
from pathlib import Path

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run("0001_initial.sql")
    if context.config.attributes["roles"]:
        run("0001_roles.sql")


def downgrade() -> None:
    raise RuntimeError("0001 has no way down: what is stored stays; drop the schema yourself if you mean it")


def run(name: str) -> None:
    sql = (Path(__file__).parent / name).read_text(encoding="utf-8")
    schema = context.config.attributes["schema"]
    op.execute(sql if schema == "pgmem" else re.sub(r"\bpgmem\b", f'"{schema}"', sql))
