-- The schema that the migrations make, as pg_dump of PostgreSQL 18 shows it. Not run by anything: compared by the tests.
CREATE SCHEMA pgmem;
CREATE FUNCTION pgmem.left_behind(of_session bigint, of_namespace text, OUT in_session bigint, OUT in_namespace text, OUT erased int8multirange, OUT abandoned int8multirange, OUT off_path int8multirange) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER COST 100000
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select of_session, of_namespace,
           coalesce(range_agg(int8range(b.left_from, b.left_to, '[]'))
                        filter (where b.cause = 'erase' and b.left_to is not null), '{}'),
           coalesce(range_agg(int8range(b.left_from, b.left_to, '[]'))
                        filter (where b.cause <> 'erase' and b.left_to is not null), '{}'),
           coalesce(range_agg(int8range(coalesce(b.base, 0), b.no, '()')), '{}')
      from pgmem.branches b
     where b.session_id = of_session and b.namespace = of_namespace
$$;
COMMENT ON FUNCTION pgmem.left_behind(of_session bigint, of_namespace text, OUT in_session bigint, OUT in_namespace text, OUT erased int8multirange, OUT abandoned int8multirange, OUT off_path int8multirange) IS 'A tree''s positions that Erase and Revise left behind, and those of nodes off the active path';
CREATE FUNCTION pgmem.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception using
        message = tg_op || ' of ' || tg_table_schema || '.' || tg_table_name || ' refused: what is stored stays as it is',
        errcode = 'restrict_violation',
        hint = 'add a fact instead: revise or erase leave turns behind';
end
$$;
COMMENT ON FUNCTION pgmem.refuse_change() IS 'Raises: what is stored stays as it is';
CREATE TABLE pgmem.branches (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    cause text NOT NULL,
    base bigint,
    left_from bigint NOT NULL,
    left_to bigint,
    note text,
    actor text,
    chain bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT branches_actor_length CHECK (((char_length(actor) >= 1) AND (char_length(actor) <= 256))),
    CONSTRAINT branches_base_before CHECK ((base < no)),
    CONSTRAINT branches_cause_known CHECK ((cause = ANY (ARRAY['revise'::text, 'reopen'::text, 'erase'::text]))),
    CONSTRAINT branches_left_range CHECK ((((left_from >= 1) AND (left_from <= no)) AND ((left_to IS NULL) OR (left_to = (no - 1))))),
    CONSTRAINT branches_reopen_leaves_nothing CHECK (((cause <> 'reopen'::text) OR (left_to IS NULL)))
);
COMMENT ON TABLE pgmem.branches IS 'One row each time the head moved back; never changed';
COMMENT ON COLUMN pgmem.branches.session_id IS 'The session that the fact belongs to';
COMMENT ON COLUMN pgmem.branches.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.branches.no IS 'The fact''s position in its tree, over all kinds of fact: its name';
COMMENT ON COLUMN pgmem.branches.cause IS 'Why the head moved back: revise, reopen or erase';
COMMENT ON COLUMN pgmem.branches.base IS 'The node that the branch starts from; null at the root';
COMMENT ON COLUMN pgmem.branches.left_from IS 'The first position past the point that it went back to';
COMMENT ON COLUMN pgmem.branches.left_to IS 'The last position left behind; null when no turn was';
COMMENT ON COLUMN pgmem.branches.note IS 'What the next attempt should know';
COMMENT ON COLUMN pgmem.branches.actor IS 'Who asked for it';
COMMENT ON COLUMN pgmem.branches.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.branches.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.sessions (
    session_id bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    goal text,
    metadata json,
    created_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    CONSTRAINT sessions_key_length CHECK (((char_length(key) >= 1) AND (char_length(key) <= 512))),
    CONSTRAINT sessions_tenant_length CHECK (((char_length(tenant) >= 1) AND (char_length(tenant) <= 128)))
);
COMMENT ON TABLE pgmem.sessions IS 'One row a conversation; never changed';
COMMENT ON COLUMN pgmem.sessions.session_id IS 'The session''s number: what every other table leads with';
COMMENT ON COLUMN pgmem.sessions.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.sessions.key IS 'The caller''s name of the session, unique in its tenant';
COMMENT ON COLUMN pgmem.sessions.goal IS 'What the session is for, as the caller put it when it was made';
COMMENT ON COLUMN pgmem.sessions.metadata IS 'The caller''s own JSON, as it was given when the session was made';
COMMENT ON COLUMN pgmem.sessions.created_at IS 'When the session was made';
CREATE TABLE pgmem.trees (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    branch bigint DEFAULT 0 NOT NULL,
    open_branch bigint DEFAULT 0 NOT NULL,
    head bigint,
    boundary bigint DEFAULT 0 NOT NULL,
    last_no bigint DEFAULT 0 NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    chain bytea NOT NULL,
    CONSTRAINT trees_boundary_range CHECK (((boundary >= 0) AND (boundary <= last_no))),
    CONSTRAINT trees_branch_range CHECK (((open_branch >= 0) AND (open_branch <= branch) AND (branch <= last_no))),
    CONSTRAINT trees_chain_length CHECK ((octet_length(chain) = 32)),
    CONSTRAINT trees_head_range CHECK (((head >= 1) AND (head <= last_no))),
    CONSTRAINT trees_namespace_form CHECK ((namespace ~ '^[A-Za-z][A-Za-z0-9_.-]{0,127}$'::text))
)
WITH (fillfactor='50');
COMMENT ON TABLE pgmem.trees IS 'One row a state tree: all that ever moves';
COMMENT ON COLUMN pgmem.trees.session_id IS 'The session that the tree belongs to';
COMMENT ON COLUMN pgmem.trees.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.trees.branch IS 'The active branch: the no of its row in branches, 0 for the first';
COMMENT ON COLUMN pgmem.trees.open_branch IS 'The newest branch that left turns behind: who last saw an older one may not append';
COMMENT ON COLUMN pgmem.trees.head IS 'The node that the next Compress hangs from; null at the root';
COMMENT ON COLUMN pgmem.trees.boundary IS 'Turns up to this position are behind a summary or left behind';
COMMENT ON COLUMN pgmem.trees.last_no IS 'The newest fact''s position: facts are numbered from 1 without a hole';
COMMENT ON COLUMN pgmem.trees.version IS 'Moves with head and branch, never with an added turn';
COMMENT ON COLUMN pgmem.trees.chain IS 'The hash chain''s newest value, over all facts in order';
CREATE VIEW pgmem.branch_log AS
 SELECT s.tenant,
    s.key AS session,
    b.session_id,
    b.namespace,
    b.no,
    b.cause,
    b.base,
    b.left_from,
    b.left_to,
    b.note,
    b.actor,
    (t.branch = b.no) AS active,
    b.created_at
   FROM ((pgmem.branches b
     JOIN pgmem.trees t ON (((t.session_id = b.session_id) AND (t.namespace = b.namespace))))
     JOIN pgmem.sessions s ON ((s.session_id = b.session_id)));
COMMENT ON VIEW pgmem.branch_log IS 'Every time the head moved back';
COMMENT ON COLUMN pgmem.branch_log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.branch_log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.branch_log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.branch_log.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.branch_log.no IS 'The fact''s position in its tree: its name';
COMMENT ON COLUMN pgmem.branch_log.cause IS 'Why the head moved back: revise, reopen or erase';
COMMENT ON COLUMN pgmem.branch_log.base IS 'The node that the branch starts from; null at the root';
COMMENT ON COLUMN pgmem.branch_log.left_from IS 'The first position past the point that it went back to';
COMMENT ON COLUMN pgmem.branch_log.left_to IS 'The last position left behind; null when no turn was';
COMMENT ON COLUMN pgmem.branch_log.note IS 'What the next attempt should know';
COMMENT ON COLUMN pgmem.branch_log.actor IS 'Who asked for it';
COMMENT ON COLUMN pgmem.branch_log.active IS 'Whether it is the branch that the tree is on';
COMMENT ON COLUMN pgmem.branch_log.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.nodes (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    branch bigint NOT NULL,
    parent bigint,
    first_no bigint NOT NULL,
    last_no bigint NOT NULL,
    kind text NOT NULL,
    label text,
    strategy text NOT NULL,
    summary text NOT NULL,
    cumulative boolean NOT NULL,
    tokens integer NOT NULL,
    source_tokens bigint NOT NULL,
    model text,
    prompt_version text,
    usage json,
    chain bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT nodes_branch_range CHECK (((branch >= 0) AND (branch < no))),
    CONSTRAINT nodes_covers_turns CHECK (((first_no > 0) AND (first_no <= last_no) AND (last_no < no))),
    CONSTRAINT nodes_kind_length CHECK (((char_length(kind) >= 1) AND (char_length(kind) <= 64))),
    CONSTRAINT nodes_label_length CHECK (((char_length(label) >= 1) AND (char_length(label) <= 256))),
    CONSTRAINT nodes_parent_before CHECK ((parent < no)),
    CONSTRAINT nodes_strategy_known CHECK ((strategy = ANY (ARRAY['llm'::text, 'tool_clear'::text, 'given'::text]))),
    CONSTRAINT nodes_summary_present CHECK ((summary ~ '[^ \t\n\r\f\v]'::text)),
    CONSTRAINT nodes_tokens_positive CHECK (((tokens >= 0) AND (source_tokens >= 0)))
);
COMMENT ON TABLE pgmem.nodes IS 'One row a summary; never changed';
COMMENT ON COLUMN pgmem.nodes.session_id IS 'The session that the fact belongs to';
COMMENT ON COLUMN pgmem.nodes.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.nodes.no IS 'The fact''s position in its tree, over all kinds of fact: its name';
COMMENT ON COLUMN pgmem.nodes.branch IS 'The branch that the node was made on';
COMMENT ON COLUMN pgmem.nodes.parent IS 'The node before it on its branch; null at the root';
COMMENT ON COLUMN pgmem.nodes.first_no IS 'The first turn that it covers';
COMMENT ON COLUMN pgmem.nodes.last_no IS 'The last turn that it covers: the boundary while it is the head';
COMMENT ON COLUMN pgmem.nodes.kind IS 'The caller''s word for what the summary is about';
COMMENT ON COLUMN pgmem.nodes.label IS 'A short title';
COMMENT ON COLUMN pgmem.nodes.strategy IS 'How the text was made: llm, tool_clear or given';
COMMENT ON COLUMN pgmem.nodes.summary IS 'The text that the model is shown for the turns';
COMMENT ON COLUMN pgmem.nodes.cumulative IS 'Whether it stands for all memory before it too';
COMMENT ON COLUMN pgmem.nodes.tokens IS 'Size of the summary in tokens';
COMMENT ON COLUMN pgmem.nodes.source_tokens IS 'Size of the turns that it covers in tokens';
COMMENT ON COLUMN pgmem.nodes.model IS 'The model that wrote it';
COMMENT ON COLUMN pgmem.nodes.prompt_version IS 'The prompt that asked for it';
COMMENT ON COLUMN pgmem.nodes.usage IS 'What the model''s provider counted';
COMMENT ON COLUMN pgmem.nodes.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.nodes.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.policies (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    policy json NOT NULL,
    chain bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT policies_no_positive CHECK ((no > 0))
);
COMMENT ON TABLE pgmem.policies IS 'One row each time a namespace''s settings were set; never changed';
COMMENT ON COLUMN pgmem.policies.session_id IS 'The session that the fact belongs to';
COMMENT ON COLUMN pgmem.policies.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.policies.no IS 'The fact''s position in its tree, over all kinds of fact: its name';
COMMENT ON COLUMN pgmem.policies.policy IS 'The namespace''s compaction settings; the newest row counts';
COMMENT ON COLUMN pgmem.policies.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.policies.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.turns (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    branch bigint NOT NULL,
    role text NOT NULL,
    content text,
    extra json,
    raw text,
    pinned boolean NOT NULL,
    tokens integer NOT NULL,
    idempotency_key text COLLATE pg_catalog."C",
    chain bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT turns_branch_range CHECK (((branch >= 0) AND (branch < no))),
    CONSTRAINT turns_idempotency_key_length CHECK (((char_length(idempotency_key) >= 1) AND (char_length(idempotency_key) <= 255))),
    CONSTRAINT turns_no_positive CHECK ((no > 0)),
    CONSTRAINT turns_role_known CHECK ((role = ANY (ARRAY['system'::text, 'user'::text, 'assistant'::text, 'tool'::text]))),
    CONSTRAINT turns_tokens_positive CHECK ((tokens >= 0))
);
COMMENT ON TABLE pgmem.turns IS 'One row a message; never changed';
COMMENT ON COLUMN pgmem.turns.session_id IS 'The session that the fact belongs to';
COMMENT ON COLUMN pgmem.turns.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.turns.no IS 'The fact''s position in its tree, over all kinds of fact: its name';
COMMENT ON COLUMN pgmem.turns.branch IS 'The branch that the turn was added on';
COMMENT ON COLUMN pgmem.turns.role IS 'system, user, assistant or tool';
COMMENT ON COLUMN pgmem.turns.content IS 'The message''s text, for people; parts are joined by line breaks';
COMMENT ON COLUMN pgmem.turns.extra IS 'The rest of the provider''s message, and content where it is not plain text';
COMMENT ON COLUMN pgmem.turns.raw IS 'The whole message as escaped JSON, where it holds NUL or a lone surrogate; content and extra then show U+FFFD';
COMMENT ON COLUMN pgmem.turns.pinned IS 'Shown verbatim in every context until its line is left';
COMMENT ON COLUMN pgmem.turns.tokens IS 'Size in tokens, by the counter that was set';
COMMENT ON COLUMN pgmem.turns.idempotency_key IS 'The caller''s name for this turn, unique in its tree';
COMMENT ON COLUMN pgmem.turns.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.turns.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.verdicts (
    session_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    node bigint NOT NULL,
    outcome text NOT NULL,
    reason text,
    missing json,
    judge text NOT NULL,
    model text,
    prompt_version text,
    usage json,
    chain bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT verdicts_node_before CHECK ((node < no)),
    CONSTRAINT verdicts_outcome_known CHECK ((outcome = ANY (ARRAY['pass'::text, 'fail'::text])))
);
COMMENT ON TABLE pgmem.verdicts IS 'One row a judgement of a node; never changed';
COMMENT ON COLUMN pgmem.verdicts.session_id IS 'The session that the fact belongs to';
COMMENT ON COLUMN pgmem.verdicts.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.verdicts.no IS 'The fact''s position in its tree, over all kinds of fact: its name';
COMMENT ON COLUMN pgmem.verdicts.node IS 'The node that was judged';
COMMENT ON COLUMN pgmem.verdicts.outcome IS 'pass or fail; the newest of a node counts';
COMMENT ON COLUMN pgmem.verdicts.reason IS 'Why, in the judge''s words';
COMMENT ON COLUMN pgmem.verdicts.missing IS 'What the summary lacks: a list of texts';
COMMENT ON COLUMN pgmem.verdicts.judge IS 'Who judged';
COMMENT ON COLUMN pgmem.verdicts.model IS 'The model that judged';
COMMENT ON COLUMN pgmem.verdicts.prompt_version IS 'The prompt that asked for the verdict';
COMMENT ON COLUMN pgmem.verdicts.usage IS 'What the model''s provider counted';
COMMENT ON COLUMN pgmem.verdicts.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.verdicts.created_at IS 'The database''s time of the statement that stored it';
CREATE VIEW pgmem.log AS
 SELECT s.tenant,
    s.key AS session,
    f.session_id,
    f.namespace,
    f.no,
    f.fact,
    f.branch,
    f.what,
    f.body,
    f.chain,
    f.created_at
   FROM (( SELECT turns.session_id,
            turns.namespace,
            turns.no,
            'turn'::text AS fact,
            turns.branch,
            turns.role AS what,
            turns.content AS body,
            turns.chain,
            turns.created_at
           FROM pgmem.turns
        UNION ALL
         SELECT nodes.session_id,
            nodes.namespace,
            nodes.no,
            'node'::text,
            nodes.branch,
            nodes.strategy,
            nodes.summary,
            nodes.chain,
            nodes.created_at
           FROM pgmem.nodes
        UNION ALL
         SELECT verdicts.session_id,
            verdicts.namespace,
            verdicts.no,
            'verdict'::text,
            NULL::bigint,
            verdicts.outcome,
            verdicts.reason,
            verdicts.chain,
            verdicts.created_at
           FROM pgmem.verdicts
        UNION ALL
         SELECT branches.session_id,
            branches.namespace,
            branches.no,
            'branch'::text,
            branches.no,
            branches.cause,
            branches.note,
            branches.chain,
            branches.created_at
           FROM pgmem.branches
        UNION ALL
         SELECT policies.session_id,
            policies.namespace,
            policies.no,
            'policy'::text,
            NULL::bigint,
            'policy'::text,
            (policies.policy)::text AS policy,
            policies.chain,
            policies.created_at
           FROM pgmem.policies) f
     JOIN pgmem.sessions s ON ((s.session_id = f.session_id)));
COMMENT ON VIEW pgmem.log IS 'All facts of all trees; order by session_id, namespace, no';
COMMENT ON COLUMN pgmem.log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.log.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.log.no IS 'The fact''s position in its tree: its name';
COMMENT ON COLUMN pgmem.log.fact IS 'What it is: turn, node, verdict, branch or policy';
COMMENT ON COLUMN pgmem.log.branch IS 'The branch that the fact was added on; null where its row names none';
COMMENT ON COLUMN pgmem.log.what IS 'The turn''s role, the node''s strategy, the verdict''s outcome or the branch''s cause';
COMMENT ON COLUMN pgmem.log.body IS 'The turn''s text, the summary, the reason, the note or the policy';
COMMENT ON COLUMN pgmem.log.chain IS 'The hash chain''s value after this fact';
COMMENT ON COLUMN pgmem.log.created_at IS 'The database''s time of the statement that stored it';
CREATE VIEW pgmem.node_log AS
 SELECT s.tenant,
    s.key AS session,
    t.session_id,
    t.namespace,
    n.no,
    n.branch,
    n.parent,
    n.first_no,
    n.last_no,
        CASE
            WHEN (v.outcome = 'fail'::text) THEN 'failed'::text
            WHEN (lb.off_path @> n.no) THEN 'abandoned'::text
            WHEN (v.outcome = 'pass'::text) THEN 'compressed'::text
            ELSE 'pending'::text
        END AS status,
    n.kind,
    n.label,
    n.strategy,
    n.summary,
    n.cumulative,
    n.tokens,
    n.source_tokens,
    n.model,
    n.prompt_version,
    n.usage,
    v.outcome,
    v.reason,
    v.missing,
    v.judge,
    v.model AS judge_model,
    v.created_at AS judged_at,
    n.created_at
   FROM ((((pgmem.trees t
     JOIN pgmem.sessions s ON ((s.session_id = t.session_id)))
     CROSS JOIN LATERAL pgmem.left_behind(t.session_id, t.namespace) lb(in_session, in_namespace, erased, abandoned, off_path))
     JOIN pgmem.nodes n ON (((n.session_id = lb.in_session) AND (n.namespace = lb.in_namespace))))
     LEFT JOIN LATERAL ( SELECT v_1.outcome,
            v_1.reason,
            v_1.missing,
            v_1.judge,
            v_1.model,
            v_1.created_at
           FROM pgmem.verdicts v_1
          WHERE ((v_1.session_id = n.session_id) AND (v_1.namespace = n.namespace) AND (v_1.node = n.no))
          ORDER BY v_1.no DESC
         LIMIT 1) v ON (true));
COMMENT ON VIEW pgmem.node_log IS 'Every node with its status and its newest verdict';
COMMENT ON COLUMN pgmem.node_log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.node_log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.node_log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.node_log.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.node_log.no IS 'The fact''s position in its tree: its name';
COMMENT ON COLUMN pgmem.node_log.branch IS 'The branch that the node was made on';
COMMENT ON COLUMN pgmem.node_log.parent IS 'The node before it on its branch; null at the root';
COMMENT ON COLUMN pgmem.node_log.first_no IS 'The first turn that it covers';
COMMENT ON COLUMN pgmem.node_log.last_no IS 'The last turn that it covers: the boundary while it is the head';
COMMENT ON COLUMN pgmem.node_log.status IS 'What the node is worth: pending, compressed, failed or abandoned';
COMMENT ON COLUMN pgmem.node_log.kind IS 'The caller''s word for what the summary is about';
COMMENT ON COLUMN pgmem.node_log.label IS 'A short title';
COMMENT ON COLUMN pgmem.node_log.strategy IS 'How the text was made: llm, tool_clear or given';
COMMENT ON COLUMN pgmem.node_log.summary IS 'The text that the model is shown for the turns';
COMMENT ON COLUMN pgmem.node_log.cumulative IS 'Whether it stands for all memory before it too';
COMMENT ON COLUMN pgmem.node_log.tokens IS 'Size of the summary in tokens';
COMMENT ON COLUMN pgmem.node_log.source_tokens IS 'Size of the turns that it covers in tokens';
COMMENT ON COLUMN pgmem.node_log.model IS 'The model that wrote it';
COMMENT ON COLUMN pgmem.node_log.prompt_version IS 'The prompt that asked for it';
COMMENT ON COLUMN pgmem.node_log.usage IS 'What the model''s provider counted';
COMMENT ON COLUMN pgmem.node_log.outcome IS 'What the newest verdict says: pass or fail; null when nobody judged';
COMMENT ON COLUMN pgmem.node_log.reason IS 'Why, in the judge''s words';
COMMENT ON COLUMN pgmem.node_log.missing IS 'What the summary lacks: a list of texts';
COMMENT ON COLUMN pgmem.node_log.judge IS 'Who judged';
COMMENT ON COLUMN pgmem.node_log.judge_model IS 'The model that judged';
COMMENT ON COLUMN pgmem.node_log.judged_at IS 'When the newest verdict was stored';
COMMENT ON COLUMN pgmem.node_log.created_at IS 'The database''s time of the statement that stored it';
CREATE TABLE pgmem.schema_version (
    version_num character varying(32) NOT NULL
);
ALTER TABLE pgmem.sessions ALTER COLUMN session_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgmem.sessions_session_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE pgmem.stages (
    session_id bigint NOT NULL,
    flow text NOT NULL COLLATE pg_catalog."C",
    no bigint NOT NULL,
    step text NOT NULL COLLATE pg_catalog."C",
    entered text[] NOT NULL,
    state json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT stages_flow_length CHECK (((char_length(flow) >= 1) AND (char_length(flow) <= 128))),
    CONSTRAINT stages_no_positive CHECK ((no > 0)),
    CONSTRAINT stages_step_length CHECK (((char_length(step) >= 1) AND (char_length(step) <= 128)))
);
COMMENT ON TABLE pgmem.stages IS 'One row each time an exchange left a flow in another step or state; never changed';
COMMENT ON COLUMN pgmem.stages.session_id IS 'The session that the flow is over';
COMMENT ON COLUMN pgmem.stages.flow IS 'The flow''s name: a session may have several';
COMMENT ON COLUMN pgmem.stages.no IS 'The row''s position in its flow, from 1 without a hole; the newest counts';
COMMENT ON COLUMN pgmem.stages.step IS 'The step that the flow is in';
COMMENT ON COLUMN pgmem.stages.entered IS 'The steps that were entered since the row before, in order';
COMMENT ON COLUMN pgmem.stages.state IS 'The flow''s state, a JSON object';
COMMENT ON COLUMN pgmem.stages.created_at IS 'The database''s time of the statement that stored it';
CREATE VIEW pgmem.stage_log AS
 SELECT s.tenant,
    s.key AS session,
    g.session_id,
    g.flow,
    g.no,
    g.step,
    g.entered,
    g.state,
    g.created_at
   FROM (pgmem.stages g
     JOIN pgmem.sessions s ON ((s.session_id = g.session_id)));
COMMENT ON VIEW pgmem.stage_log IS 'Every step and state that a flow was saved with';
COMMENT ON COLUMN pgmem.stage_log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.stage_log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.stage_log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.stage_log.flow IS 'The flow''s name';
COMMENT ON COLUMN pgmem.stage_log.no IS 'The row''s position in its flow; the newest counts';
COMMENT ON COLUMN pgmem.stage_log.step IS 'The step that the flow is in';
COMMENT ON COLUMN pgmem.stage_log.entered IS 'The steps that were entered since the row before, in order';
COMMENT ON COLUMN pgmem.stage_log.state IS 'The flow''s state, a JSON object';
COMMENT ON COLUMN pgmem.stage_log.created_at IS 'The database''s time of the statement that stored it';
CREATE VIEW pgmem.turn_log AS
 SELECT s.tenant,
    s.key AS session,
    t.session_id,
    t.namespace,
    u.no,
    u.branch,
        CASE
            WHEN (lb.erased @> u.no) THEN 'erased'::text
            WHEN (lb.abandoned @> u.no) THEN 'abandoned'::text
            WHEN (u.no > t.boundary) THEN 'active'::text
            ELSE 'compressed'::text
        END AS status,
    c.no AS node,
    u.role,
    u.content,
    u.extra,
    u.raw,
    u.pinned,
    u.tokens,
    u.idempotency_key,
    u.created_at
   FROM ((((pgmem.trees t
     JOIN pgmem.sessions s ON ((s.session_id = t.session_id)))
     CROSS JOIN LATERAL pgmem.left_behind(t.session_id, t.namespace) lb(in_session, in_namespace, erased, abandoned, off_path))
     JOIN pgmem.turns u ON (((u.session_id = lb.in_session) AND (u.namespace = lb.in_namespace))))
     LEFT JOIN LATERAL ( SELECT n.no
           FROM pgmem.nodes n
          WHERE ((n.session_id = u.session_id) AND (n.namespace = u.namespace) AND (n.last_no >= u.no) AND (n.first_no <= u.no) AND (u.no <= t.boundary) AND (NOT (lb.off_path @> n.no)) AND (NOT (lb.erased @> u.no)) AND (NOT (lb.abandoned @> u.no)))
          ORDER BY n.last_no
         LIMIT 1) c ON (true));
COMMENT ON VIEW pgmem.turn_log IS 'Every turn with its status and the node that stands for it';
COMMENT ON COLUMN pgmem.turn_log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.turn_log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.turn_log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.turn_log.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.turn_log.no IS 'The fact''s position in its tree: its name';
COMMENT ON COLUMN pgmem.turn_log.branch IS 'The branch that the turn was added on';
COMMENT ON COLUMN pgmem.turn_log.status IS 'Where the turn is: active, compressed, abandoned or erased';
COMMENT ON COLUMN pgmem.turn_log.node IS 'The node on the active path that stands for the turn; null when none does';
COMMENT ON COLUMN pgmem.turn_log.role IS 'system, user, assistant or tool';
COMMENT ON COLUMN pgmem.turn_log.content IS 'The message''s text, for people; parts are joined by line breaks';
COMMENT ON COLUMN pgmem.turn_log.extra IS 'The rest of the provider''s message, and content where it is not plain text';
COMMENT ON COLUMN pgmem.turn_log.raw IS 'The whole message as escaped JSON, where it holds NUL or a lone surrogate; content and extra then show U+FFFD';
COMMENT ON COLUMN pgmem.turn_log.pinned IS 'Shown verbatim in every context until its line is left';
COMMENT ON COLUMN pgmem.turn_log.tokens IS 'Size in tokens, by the counter that was set';
COMMENT ON COLUMN pgmem.turn_log.idempotency_key IS 'The caller''s name for this turn, unique in its tree';
COMMENT ON COLUMN pgmem.turn_log.created_at IS 'The database''s time of the statement that stored it';
CREATE VIEW pgmem.verdict_log AS
 SELECT s.tenant,
    s.key AS session,
    v.session_id,
    v.namespace,
    v.no,
    v.node,
    v.outcome,
    v.reason,
    v.missing,
    v.judge,
    v.model,
    v.prompt_version,
    v.usage,
    v.created_at
   FROM (pgmem.verdicts v
     JOIN pgmem.sessions s ON ((s.session_id = v.session_id)));
COMMENT ON VIEW pgmem.verdict_log IS 'Everything that a judge said of a node';
COMMENT ON COLUMN pgmem.verdict_log.tenant IS 'Who owns the session';
COMMENT ON COLUMN pgmem.verdict_log.session IS 'The session''s key';
COMMENT ON COLUMN pgmem.verdict_log.session_id IS 'The session''s number';
COMMENT ON COLUMN pgmem.verdict_log.namespace IS 'The memory space inside the session';
COMMENT ON COLUMN pgmem.verdict_log.no IS 'The fact''s position in its tree: its name';
COMMENT ON COLUMN pgmem.verdict_log.node IS 'The node that was judged';
COMMENT ON COLUMN pgmem.verdict_log.outcome IS 'pass or fail; the newest of a node counts';
COMMENT ON COLUMN pgmem.verdict_log.reason IS 'Why, in the judge''s words';
COMMENT ON COLUMN pgmem.verdict_log.missing IS 'What the summary lacks: a list of texts';
COMMENT ON COLUMN pgmem.verdict_log.judge IS 'Who judged';
COMMENT ON COLUMN pgmem.verdict_log.model IS 'The model that judged';
COMMENT ON COLUMN pgmem.verdict_log.prompt_version IS 'The prompt that asked for the verdict';
COMMENT ON COLUMN pgmem.verdict_log.usage IS 'What the model''s provider counted';
COMMENT ON COLUMN pgmem.verdict_log.created_at IS 'The database''s time of the statement that stored it';
ALTER TABLE ONLY pgmem.branches
    ADD CONSTRAINT branches_pkey PRIMARY KEY (session_id, namespace, no);
ALTER TABLE ONLY pgmem.nodes
    ADD CONSTRAINT nodes_first_unique UNIQUE (session_id, namespace, branch, first_no);
ALTER TABLE ONLY pgmem.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (session_id, namespace, no);
ALTER TABLE ONLY pgmem.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (session_id, namespace, no);
ALTER TABLE ONLY pgmem.schema_version
    ADD CONSTRAINT schema_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY pgmem.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (session_id);
ALTER TABLE ONLY pgmem.sessions
    ADD CONSTRAINT sessions_tenant_key_unique UNIQUE (tenant, key);
ALTER TABLE ONLY pgmem.stages
    ADD CONSTRAINT stages_pkey PRIMARY KEY (session_id, flow, no);
ALTER TABLE ONLY pgmem.trees
    ADD CONSTRAINT trees_pkey PRIMARY KEY (session_id, namespace);
ALTER TABLE ONLY pgmem.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (session_id, namespace, no);
ALTER TABLE ONLY pgmem.verdicts
    ADD CONSTRAINT verdicts_pkey PRIMARY KEY (session_id, namespace, no);
CREATE INDEX branches_erase ON pgmem.branches USING btree (session_id, namespace, no) WHERE (cause = 'erase'::text);
CREATE INDEX branches_left ON pgmem.branches USING btree (session_id, namespace, left_to) INCLUDE (left_from) WHERE (left_to IS NOT NULL);
CREATE INDEX branches_revise ON pgmem.branches USING btree (session_id, namespace, no) INCLUDE (left_from, left_to) WHERE (cause = 'revise'::text);
CREATE INDEX nodes_last ON pgmem.nodes USING btree (session_id, namespace, last_no) INCLUDE (first_no);
CREATE UNIQUE INDEX turns_idempotency_key_unique ON pgmem.turns USING btree (session_id, namespace, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX turns_pinned ON pgmem.turns USING btree (session_id, namespace, no) WHERE pinned;
CREATE INDEX turns_user ON pgmem.turns USING btree (session_id, namespace, no) WHERE (role = 'user'::text);
CREATE INDEX verdicts_node ON pgmem.verdicts USING btree (session_id, namespace, node, no);
CREATE TRIGGER branches_append_only BEFORE DELETE OR UPDATE ON pgmem.branches FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.branches ENABLE ALWAYS TRIGGER branches_append_only;
CREATE TRIGGER branches_no_truncate BEFORE TRUNCATE ON pgmem.branches FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.branches ENABLE ALWAYS TRIGGER branches_no_truncate;
CREATE TRIGGER nodes_append_only BEFORE DELETE OR UPDATE ON pgmem.nodes FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.nodes ENABLE ALWAYS TRIGGER nodes_append_only;
CREATE TRIGGER nodes_no_truncate BEFORE TRUNCATE ON pgmem.nodes FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.nodes ENABLE ALWAYS TRIGGER nodes_no_truncate;
CREATE TRIGGER policies_append_only BEFORE DELETE OR UPDATE ON pgmem.policies FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.policies ENABLE ALWAYS TRIGGER policies_append_only;
CREATE TRIGGER policies_no_truncate BEFORE TRUNCATE ON pgmem.policies FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.policies ENABLE ALWAYS TRIGGER policies_no_truncate;
CREATE TRIGGER sessions_append_only BEFORE DELETE OR UPDATE ON pgmem.sessions FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.sessions ENABLE ALWAYS TRIGGER sessions_append_only;
CREATE TRIGGER sessions_no_truncate BEFORE TRUNCATE ON pgmem.sessions FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.sessions ENABLE ALWAYS TRIGGER sessions_no_truncate;
CREATE TRIGGER stages_append_only BEFORE DELETE OR UPDATE ON pgmem.stages FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.stages ENABLE ALWAYS TRIGGER stages_append_only;
CREATE TRIGGER stages_no_truncate BEFORE TRUNCATE ON pgmem.stages FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.stages ENABLE ALWAYS TRIGGER stages_no_truncate;
CREATE TRIGGER trees_forward_only BEFORE UPDATE ON pgmem.trees FOR EACH ROW WHEN (((new.session_id <> old.session_id) OR (new.namespace <> old.namespace) OR (new.last_no < old.last_no) OR (new.version < old.version) OR (new.branch < old.branch) OR (new.open_branch < old.open_branch))) EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.trees ENABLE ALWAYS TRIGGER trees_forward_only;
CREATE TRIGGER trees_kept BEFORE DELETE ON pgmem.trees FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.trees ENABLE ALWAYS TRIGGER trees_kept;
CREATE TRIGGER trees_no_truncate BEFORE TRUNCATE ON pgmem.trees FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.trees ENABLE ALWAYS TRIGGER trees_no_truncate;
CREATE TRIGGER turns_append_only BEFORE DELETE OR UPDATE ON pgmem.turns FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.turns ENABLE ALWAYS TRIGGER turns_append_only;
CREATE TRIGGER turns_no_truncate BEFORE TRUNCATE ON pgmem.turns FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.turns ENABLE ALWAYS TRIGGER turns_no_truncate;
CREATE TRIGGER verdicts_append_only BEFORE DELETE OR UPDATE ON pgmem.verdicts FOR EACH ROW EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.verdicts ENABLE ALWAYS TRIGGER verdicts_append_only;
CREATE TRIGGER verdicts_no_truncate BEFORE TRUNCATE ON pgmem.verdicts FOR EACH STATEMENT EXECUTE FUNCTION pgmem.refuse_change();
ALTER TABLE pgmem.verdicts ENABLE ALWAYS TRIGGER verdicts_no_truncate;
ALTER TABLE ONLY pgmem.branches
    ADD CONSTRAINT branches_base_fkey FOREIGN KEY (session_id, namespace, base) REFERENCES pgmem.nodes(session_id, namespace, no);
ALTER TABLE ONLY pgmem.branches
    ADD CONSTRAINT branches_tree_fkey FOREIGN KEY (session_id, namespace) REFERENCES pgmem.trees(session_id, namespace);
ALTER TABLE ONLY pgmem.nodes
    ADD CONSTRAINT nodes_parent_fkey FOREIGN KEY (session_id, namespace, parent) REFERENCES pgmem.nodes(session_id, namespace, no);
ALTER TABLE ONLY pgmem.nodes
    ADD CONSTRAINT nodes_tree_fkey FOREIGN KEY (session_id, namespace) REFERENCES pgmem.trees(session_id, namespace);
ALTER TABLE ONLY pgmem.policies
    ADD CONSTRAINT policies_tree_fkey FOREIGN KEY (session_id, namespace) REFERENCES pgmem.trees(session_id, namespace);
ALTER TABLE ONLY pgmem.stages
    ADD CONSTRAINT stages_session_fkey FOREIGN KEY (session_id) REFERENCES pgmem.sessions(session_id);
ALTER TABLE ONLY pgmem.trees
    ADD CONSTRAINT trees_session_fkey FOREIGN KEY (session_id) REFERENCES pgmem.sessions(session_id);
ALTER TABLE ONLY pgmem.verdicts
    ADD CONSTRAINT verdicts_node_fkey FOREIGN KEY (session_id, namespace, node) REFERENCES pgmem.nodes(session_id, namespace, no);
ALTER TABLE ONLY pgmem.verdicts
    ADD CONSTRAINT verdicts_tree_fkey FOREIGN KEY (session_id, namespace) REFERENCES pgmem.trees(session_id, namespace);
GRANT USAGE ON SCHEMA pgmem TO pgmem_app;
GRANT USAGE ON SCHEMA pgmem TO pgmem_reader;
REVOKE ALL ON FUNCTION pgmem.left_behind(of_session bigint, of_namespace text, OUT in_session bigint, OUT in_namespace text, OUT erased int8multirange, OUT abandoned int8multirange, OUT off_path int8multirange) FROM PUBLIC;
GRANT ALL ON FUNCTION pgmem.left_behind(of_session bigint, of_namespace text, OUT in_session bigint, OUT in_namespace text, OUT erased int8multirange, OUT abandoned int8multirange, OUT off_path int8multirange) TO pgmem_app;
GRANT ALL ON FUNCTION pgmem.left_behind(of_session bigint, of_namespace text, OUT in_session bigint, OUT in_namespace text, OUT erased int8multirange, OUT abandoned int8multirange, OUT off_path int8multirange) TO pgmem_reader;
GRANT SELECT,INSERT ON TABLE pgmem.branches TO pgmem_app;
GRANT SELECT,INSERT ON TABLE pgmem.sessions TO pgmem_app;
GRANT SELECT,INSERT ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(branch) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(open_branch) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(head) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(boundary) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(last_no) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(version) ON TABLE pgmem.trees TO pgmem_app;
GRANT UPDATE(chain) ON TABLE pgmem.trees TO pgmem_app;
GRANT SELECT ON TABLE pgmem.branch_log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.branch_log TO pgmem_reader;
GRANT SELECT,INSERT ON TABLE pgmem.nodes TO pgmem_app;
GRANT SELECT,INSERT ON TABLE pgmem.policies TO pgmem_app;
GRANT SELECT,INSERT ON TABLE pgmem.turns TO pgmem_app;
GRANT SELECT,INSERT ON TABLE pgmem.verdicts TO pgmem_app;
GRANT SELECT ON TABLE pgmem.log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.log TO pgmem_reader;
GRANT SELECT ON TABLE pgmem.node_log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.node_log TO pgmem_reader;
GRANT SELECT ON TABLE pgmem.schema_version TO pgmem_app;
GRANT SELECT ON TABLE pgmem.schema_version TO pgmem_reader;
GRANT SELECT,INSERT ON TABLE pgmem.stages TO pgmem_app;
GRANT SELECT ON TABLE pgmem.stage_log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.stage_log TO pgmem_reader;
GRANT SELECT ON TABLE pgmem.turn_log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.turn_log TO pgmem_reader;
GRANT SELECT ON TABLE pgmem.verdict_log TO pgmem_app;
GRANT SELECT ON TABLE pgmem.verdict_log TO pgmem_reader;
