"""Stages: the step and the state of a flow over a session."""

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run = context.config.attributes["run"]
    run("0002_stages.sql")
    if context.config.attributes["roles"]:
        run("0002_roles.sql")


def downgrade() -> None:
    raise RuntimeError("0002 has no way down: what is stored stays; the release before runs on it as it is")
