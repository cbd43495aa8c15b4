"""The tables, as SQLAlchemy declares them: what Alembic is checked against and what analysts query with.

Applications with an Alembic of their own can include it: ``target_metadata = [mine, pgmem.store.schema.metadata("pgmem")]``.
Triggers, functions, views and grants are in the migrations only; ``migrations/schema.sql`` shows the whole.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem

TREE_KEY = ("session_id", "namespace")
FACT_KEY = (*TREE_KEY, "no")


def metadata(schema: str = "pgmem") -> MetaData:
    """All tables of pgmem in the schema of that name.

    Example:
        >>> sorted(metadata("pgmem").tables)[0]
        'pgmem.branches'
    """
    tables = MetaData(schema=schema)
    _sessions(tables)
    _trees(tables)
    _turns(tables)
    _nodes(tables)
    _verdicts(tables)
    _branches(tables)
    _policies(tables)
    _stages(tables)
    return tables


def _sessions(tables: MetaData) -> None:
    Table(
        "sessions",
        tables,
        Column(
            "session_id",
            BigInteger,
            Identity(always=True),
            comment="The session's number: what every other table leads with",
        ),
        Column("tenant", _name(), nullable=False, comment="Who owns the session"),
        Column("key", _name(), nullable=False, comment="The caller's name of the session, unique in its tenant"),
        Column("goal", Text, comment="What the session is for, as the caller put it when it was made"),
        Column("metadata", JSON, comment="The caller's own JSON, as it was given when the session was made"),
        Column(
            "created_at",
            _time(),
            nullable=False,
            server_default=text("statement_timestamp()"),
            comment="When the session was made",
        ),
        PrimaryKeyConstraint("session_id", name="sessions_pkey"),
        UniqueConstraint("tenant", "key", name="sessions_tenant_key_unique"),
        CheckConstraint("char_length(tenant) between 1 and 128", name="sessions_tenant_length"),
        CheckConstraint("char_length(key) between 1 and 512", name="sessions_key_length"),
        comment="One row a conversation; never changed",
    )


def _trees(tables: MetaData) -> None:
    Table(
        "trees",
        tables,
        Column(
            "session_id",
            BigInteger,
            autoincrement=False,
            nullable=False,
            comment="The session that the tree belongs to",
        ),
        Column("namespace", _name(), nullable=False, comment="The memory space inside the session"),
        Column(
            "branch",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="The active branch: the no of its row in branches, 0 for the first",
        ),
        Column(
            "open_branch",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="The newest branch that left turns behind: who last saw an older one may not append",
        ),
        Column("head", BigInteger, comment="The node that the next Compress hangs from; null at the root"),
        Column(
            "boundary",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="Turns up to this position are behind a summary or left behind",
        ),
        Column(
            "last_no",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="The newest fact's position: facts are numbered from 1 without a hole",
        ),
        Column(
            "version",
            BigInteger,
            nullable=False,
            server_default=text("0"),
            comment="Moves with head and branch, never with an added turn",
        ),
        Column("chain", LargeBinary, nullable=False, comment="The hash chain's newest value, over all facts in order"),
        PrimaryKeyConstraint(*TREE_KEY, name="trees_pkey"),
        ForeignKeyConstraint(["session_id"], [f"{tables.schema}.sessions.session_id"], name="trees_session_fkey"),
        CheckConstraint("namespace ~ '^[A-Za-z][A-Za-z0-9_.-]{0,127}$'", name="trees_namespace_form"),
        CheckConstraint("open_branch >= 0 and open_branch <= branch and branch <= last_no", name="trees_branch_range"),
        CheckConstraint("head between 1 and last_no", name="trees_head_range"),
        CheckConstraint("boundary between 0 and last_no", name="trees_boundary_range"),
        CheckConstraint("octet_length(chain) = 32", name="trees_chain_length"),
        comment="One row a state tree: all that ever moves",
        postgresql_with={"fillfactor": 50},
    )


def _turns(tables: MetaData) -> None:
    turns = Table(
        "turns",
        tables,
        *_fact_columns(),
        Column("branch", BigInteger, nullable=False, comment="The branch that the turn was added on"),
        Column("role", Text, nullable=False, comment="system, user, assistant or tool"),
        Column("content", Text, comment="The message's text, for people; parts are joined by line breaks"),
        Column("extra", JSON, comment="The rest of the provider's message, and content where it is not plain text"),
        Column(
            "raw",
            Text,
            comment="The whole message as escaped JSON, where it holds NUL or a lone surrogate; content and extra then show U+FFFD",
        ),
        Column("pinned", Boolean, nullable=False, comment="Shown verbatim in every context until its line is left"),
        Column("tokens", Integer, nullable=False, comment="Size in tokens, by the counter that was set"),
        Column("idempotency_key", _name(), comment="The caller's name for this turn, unique in its tree"),
        *_fact_tail(),
        PrimaryKeyConstraint(*FACT_KEY, name="turns_pkey"),
        CheckConstraint("no > 0", name="turns_no_positive"),
        CheckConstraint("branch >= 0 and branch < no", name="turns_branch_range"),
        CheckConstraint("role in ('system', 'user', 'assistant', 'tool')", name="turns_role_known"),
        CheckConstraint("tokens >= 0", name="turns_tokens_positive"),
        CheckConstraint("char_length(idempotency_key) between 1 and 255", name="turns_idempotency_key_length"),
        comment="One row a message; never changed",
    )
    key = (turns.c.session_id, turns.c.namespace)
    Index(
        "turns_idempotency_key_unique",
        *key,
        turns.c.idempotency_key,
        unique=True,
        postgresql_where=text("idempotency_key is not null"),
    )
    Index("turns_user", *key, turns.c.no, postgresql_where=text("role = 'user'"))
    Index("turns_pinned", *key, turns.c.no, postgresql_where=text("pinned"))


def _nodes(tables: MetaData) -> None:
    nodes = Table(
        "nodes",
        tables,
        *_fact_columns(),
        Column("branch", BigInteger, nullable=False, comment="The branch that the node was made on"),
        Column("parent", BigInteger, comment="The node before it on its branch; null at the root"),
        Column("first_no", BigInteger, nullable=False, comment="The first turn that it covers"),
        Column(
            "last_no",
            BigInteger,
            nullable=False,
            comment="The last turn that it covers: the boundary while it is the head",
        ),
        Column("kind", Text, nullable=False, comment="The caller's word for what the summary is about"),
        Column("label", Text, comment="A short title"),
        Column("strategy", Text, nullable=False, comment="How the text was made: llm, tool_clear or given"),
        Column("summary", Text, nullable=False, comment="The text that the model is shown for the turns"),
        Column("cumulative", Boolean, nullable=False, comment="Whether it stands for all memory before it too"),
        Column("tokens", Integer, nullable=False, comment="Size of the summary in tokens"),
        Column("source_tokens", BigInteger, nullable=False, comment="Size of the turns that it covers in tokens"),
        Column("model", Text, comment="The model that wrote it"),
        Column("prompt_version", Text, comment="The prompt that asked for it"),
        Column("usage", JSON, comment="What the model's provider counted"),
        *_fact_tail(),
        PrimaryKeyConstraint(*FACT_KEY, name="nodes_pkey"),
        _tree_key(tables, "nodes"),
        ForeignKeyConstraint(
            [*TREE_KEY, "parent"], [f"{tables.schema}.nodes.{column}" for column in FACT_KEY], name="nodes_parent_fkey"
        ),
        UniqueConstraint(*TREE_KEY, "branch", "first_no", name="nodes_first_unique"),
        CheckConstraint("branch >= 0 and branch < no", name="nodes_branch_range"),
        CheckConstraint("parent < no", name="nodes_parent_before"),
        CheckConstraint("first_no > 0 and first_no <= last_no and last_no < no", name="nodes_covers_turns"),
        CheckConstraint("char_length(kind) between 1 and 64", name="nodes_kind_length"),
        CheckConstraint("char_length(label) between 1 and 256", name="nodes_label_length"),
        CheckConstraint("strategy in ('llm', 'tool_clear', 'given')", name="nodes_strategy_known"),
        CheckConstraint(r"summary ~ '[^ \t\n\r\f\v]'", name="nodes_summary_present"),
        CheckConstraint("tokens >= 0 and source_tokens >= 0", name="nodes_tokens_positive"),
        comment="One row a summary; never changed",
    )
    Index("nodes_last", nodes.c.session_id, nodes.c.namespace, nodes.c.last_no, postgresql_include=["first_no"])


def _verdicts(tables: MetaData) -> None:
    verdicts = Table(
        "verdicts",
        tables,
        *_fact_columns(),
        Column("node", BigInteger, nullable=False, comment="The node that was judged"),
        Column("outcome", Text, nullable=False, comment="pass or fail; the newest of a node counts"),
        Column("reason", Text, comment="Why, in the judge's words"),
        Column("missing", JSON, comment="What the summary lacks: a list of texts"),
        Column("judge", Text, nullable=False, comment="Who judged"),
        Column("model", Text, comment="The model that judged"),
        Column("prompt_version", Text, comment="The prompt that asked for the verdict"),
        Column("usage", JSON, comment="What the model's provider counted"),
        *_fact_tail(),
        PrimaryKeyConstraint(*FACT_KEY, name="verdicts_pkey"),
        _tree_key(tables, "verdicts"),
        ForeignKeyConstraint(
            [*TREE_KEY, "node"], [f"{tables.schema}.nodes.{column}" for column in FACT_KEY], name="verdicts_node_fkey"
        ),
        CheckConstraint("node < no", name="verdicts_node_before"),
        CheckConstraint("outcome in ('pass', 'fail')", name="verdicts_outcome_known"),
        comment="One row a judgement of a node; never changed",
    )
    Index("verdicts_node", verdicts.c.session_id, verdicts.c.namespace, verdicts.c.node, verdicts.c.no)


def _branches(tables: MetaData) -> None:
    branches = Table(
        "branches",
        tables,
        *_fact_columns(),
        Column("cause", Text, nullable=False, comment="Why the head moved back: revise, reopen or erase"),
        Column("base", BigInteger, comment="The node that the branch starts from; null at the root"),
        Column("left_from", BigInteger, nullable=False, comment="The first position past the point that it went back to"),
        Column("left_to", BigInteger, comment="The last position left behind; null when no turn was"),
        Column("note", Text, comment="What the next attempt should know"),
        Column("actor", Text, comment="Who asked for it"),
        *_fact_tail(),
        PrimaryKeyConstraint(*FACT_KEY, name="branches_pkey"),
        _tree_key(tables, "branches"),
        ForeignKeyConstraint(
            [*TREE_KEY, "base"], [f"{tables.schema}.nodes.{column}" for column in FACT_KEY], name="branches_base_fkey"
        ),
        CheckConstraint("cause in ('revise', 'reopen', 'erase')", name="branches_cause_known"),
        CheckConstraint("base < no", name="branches_base_before"),
        CheckConstraint("left_from between 1 and no and (left_to is null or left_to = no - 1)", name="branches_left_range"),
        CheckConstraint("cause <> 'reopen' or left_to is null", name="branches_reopen_leaves_nothing"),
        CheckConstraint("char_length(actor) between 1 and 256", name="branches_actor_length"),
        comment="One row each time the head moved back; never changed",
    )
    key = (branches.c.session_id, branches.c.namespace)
    Index(
        "branches_left",
        *key,
        branches.c.left_to,
        postgresql_include=["left_from"],
        postgresql_where=text("left_to is not null"),
    )
    Index(
        "branches_revise",
        *key,
        branches.c.no,
        postgresql_include=["left_from", "left_to"],
        postgresql_where=text("cause = 'revise'"),
    )
    Index("branches_erase", *key, branches.c.no, postgresql_where=text("cause = 'erase'"))


def _policies(tables: MetaData) -> None:
    Table(
        "policies",
        tables,
        *_fact_columns(),
        Column("policy", JSON, nullable=False, comment="The namespace's compaction settings; the newest row counts"),
        *_fact_tail(),
        PrimaryKeyConstraint(*FACT_KEY, name="policies_pkey"),
        _tree_key(tables, "policies"),
        CheckConstraint("no > 0", name="policies_no_positive"),
        comment="One row each time a namespace's settings were set; never changed",
    )


def _stages(tables: MetaData) -> None:
    Table(
        "stages",
        tables,
        Column("session_id", BigInteger, autoincrement=False, nullable=False, comment="The session that the flow is over"),
        Column("flow", _name(), nullable=False, comment="The flow's name: a session may have several"),
        Column(
            "no",
            BigInteger,
            autoincrement=False,
            nullable=False,
            comment="The row's position in its flow, from 1 without a hole; the newest counts",
        ),
        Column("step", _name(), nullable=False, comment="The step that the flow is in"),
        Column(
            "entered",
            ARRAY(Text),
            nullable=False,
            comment="The steps that were entered since the row before, in order",
        ),
        Column("state", JSON, nullable=False, comment="The flow's state, a JSON object"),
        Column("created_at", _time(), nullable=False, comment="The database's time of the statement that stored it"),
        PrimaryKeyConstraint("session_id", "flow", "no", name="stages_pkey"),
        ForeignKeyConstraint(["session_id"], [f"{tables.schema}.sessions.session_id"], name="stages_session_fkey"),
        CheckConstraint("no > 0", name="stages_no_positive"),
        CheckConstraint("char_length(flow) between 1 and 128", name="stages_flow_length"),
        CheckConstraint("char_length(step) between 1 and 128", name="stages_step_length"),
        comment="One row each time an exchange left a flow in another step or state; never changed",
    )


def _fact_columns() -> list[SchemaItem]:
    return [
        Column(
            "session_id",
            BigInteger,
            autoincrement=False,
            nullable=False,
            comment="The session that the fact belongs to",
        ),
        Column("namespace", _name(), nullable=False, comment="The memory space inside the session"),
        Column(
            "no",
            BigInteger,
            autoincrement=False,
            nullable=False,
            comment="The fact's position in its tree, over all kinds of fact: its name",
        ),
    ]


def _fact_tail() -> list[SchemaItem]:
    return [
        Column("chain", LargeBinary, nullable=False, comment="The hash chain's value after this fact"),
        Column("created_at", _time(), nullable=False, comment="The database's time of the statement that stored it"),
    ]


def _tree_key(tables: MetaData, table: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        list(TREE_KEY), [f"{tables.schema}.trees.{column}" for column in TREE_KEY], name=f"{table}_tree_fkey"
    )


def _name() -> Text:
    return Text(collation="C")


def _time() -> DateTime:
    return DateTime(timezone=True)
