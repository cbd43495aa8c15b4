"""The state tree, the audit views and the roles."""

from alembic import context

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run = context.config.attributes["run"]
    run("0001_initial.sql")
    if context.config.attributes["roles"]:
        run("0001_roles.sql")


def downgrade() -> None:
    raise RuntimeError("0001 has no way down: what is stored stays; drop the schema yourself if you mean it")
