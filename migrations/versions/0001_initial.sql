-- The state tree: sessions, trees and the five append-only logs of facts.

create table pgmem.sessions (
    session_id bigint generated always as identity,
    tenant     text collate "C" not null,
    key        text collate "C" not null,
    goal       text,
    metadata   json,
    created_at timestamptz not null default statement_timestamp(),
    constraint sessions_pkey primary key (session_id),
    constraint sessions_tenant_key_unique unique (tenant, key),
    constraint sessions_tenant_length check (char_length(tenant) between 1 and 128),
    constraint sessions_key_length check (char_length(key) between 1 and 512)
);

create table pgmem.trees (
    session_id  bigint not null,
    namespace   text collate "C" not null,
    branch      bigint not null default 0,
    open_branch bigint not null default 0,
    head        bigint,
    boundary    bigint not null default 0,
    last_no     bigint not null default 0,
    version     bigint not null default 0,
    chain       bytea not null,
    constraint trees_pkey primary key (session_id, namespace),
    constraint trees_session_fkey foreign key (session_id) references pgmem.sessions (session_id),
    constraint trees_namespace_form check (namespace ~ '^[A-Za-z][A-Za-z0-9_.-]{0,127}$'),
    constraint trees_branch_range check (open_branch >= 0 and open_branch <= branch and branch <= last_no),
    constraint trees_head_range check (head between 1 and last_no),
    constraint trees_boundary_range check (boundary between 0 and last_no),
    constraint trees_chain_length check (octet_length(chain) = 32)
) with (fillfactor = 50);

create table pgmem.turns (
    session_id      bigint not null,
    namespace       text collate "C" not null,
    no              bigint not null,
    branch          bigint not null,
    role            text not null,
    content         text,
    extra           json,
    raw             text,
    pinned          boolean not null,
    tokens          integer not null,
    idempotency_key text collate "C",
    chain           bytea not null,
    created_at      timestamptz not null,
    constraint turns_pkey primary key (session_id, namespace, no),
    constraint turns_no_positive check (no > 0),
    constraint turns_branch_range check (branch >= 0 and branch < no),
    constraint turns_role_known check (role in ('system', 'user', 'assistant', 'tool')),
    constraint turns_tokens_positive check (tokens >= 0),
    constraint turns_idempotency_key_length check (char_length(idempotency_key) between 1 and 255)
);
create unique index turns_idempotency_key_unique on pgmem.turns (session_id, namespace, idempotency_key)
    where idempotency_key is not null;
create index turns_user on pgmem.turns (session_id, namespace, no) where role = 'user';
create index turns_pinned on pgmem.turns (session_id, namespace, no) where pinned;

create table pgmem.nodes (
    session_id     bigint not null,
    namespace      text collate "C" not null,
    no             bigint not null,
    branch         bigint not null,
    parent         bigint,
    first_no       bigint not null,
    last_no        bigint not null,
    kind           text not null,
    label          text,
    strategy       text not null,
    summary        text not null,
    cumulative     boolean not null,
    tokens         integer not null,
    source_tokens  bigint not null,
    model          text,
    prompt_version text,
    usage          json,
    chain          bytea not null,
    created_at     timestamptz not null,
    constraint nodes_pkey primary key (session_id, namespace, no),
    constraint nodes_tree_fkey foreign key (session_id, namespace) references pgmem.trees (session_id, namespace),
    constraint nodes_parent_fkey foreign key (session_id, namespace, parent)
        references pgmem.nodes (session_id, namespace, no),
    constraint nodes_first_unique unique (session_id, namespace, branch, first_no),
    constraint nodes_branch_range check (branch >= 0 and branch < no),
    constraint nodes_parent_before check (parent < no),
    constraint nodes_covers_turns check (first_no > 0 and first_no <= last_no and last_no < no),
    constraint nodes_kind_length check (char_length(kind) between 1 and 64),
    constraint nodes_label_length check (char_length(label) between 1 and 256),
    constraint nodes_strategy_known check (strategy in ('llm', 'tool_clear', 'given')),
    constraint nodes_summary_present check (summary ~ '[^ \t\n\r\f\v]'),
    constraint nodes_tokens_positive check (tokens >= 0 and source_tokens >= 0)
);

create table pgmem.verdicts (
    session_id     bigint not null,
    namespace      text collate "C" not null,
    no             bigint not null,
    node           bigint not null,
    outcome        text not null,
    reason         text,
    missing        json,
    judge          text not null,
    model          text,
    prompt_version text,
    usage          json,
    chain          bytea not null,
    created_at     timestamptz not null,
    constraint verdicts_pkey primary key (session_id, namespace, no),
    constraint verdicts_tree_fkey foreign key (session_id, namespace) references pgmem.trees (session_id, namespace),
    constraint verdicts_node_fkey foreign key (session_id, namespace, node)
        references pgmem.nodes (session_id, namespace, no),
    constraint verdicts_node_before check (node < no),
    constraint verdicts_outcome_known check (outcome in ('pass', 'fail'))
);
create index verdicts_node on pgmem.verdicts (session_id, namespace, node, no);

create table pgmem.branches (
    session_id bigint not null,
    namespace  text collate "C" not null,
    no         bigint not null,
    cause      text not null,
    base       bigint,
    left_from  bigint not null,
    left_to    bigint,
    note       text,
    actor      text,
    chain      bytea not null,
    created_at timestamptz not null,
    constraint branches_pkey primary key (session_id, namespace, no),
    constraint branches_tree_fkey foreign key (session_id, namespace) references pgmem.trees (session_id, namespace),
    constraint branches_base_fkey foreign key (session_id, namespace, base)
        references pgmem.nodes (session_id, namespace, no),
    constraint branches_cause_known check (cause in ('revise', 'reopen', 'erase')),
    constraint branches_base_before check (base < no),
    constraint branches_left_range check (left_from between 1 and no and (left_to is null or left_to = no - 1)),
    constraint branches_reopen_leaves_nothing check (cause <> 'reopen' or left_to is null),
    constraint branches_actor_length check (char_length(actor) between 1 and 256)
);
create index branches_left on pgmem.branches (session_id, namespace, left_to) include (left_from)
    where left_to is not null;
create index branches_revise on pgmem.branches (session_id, namespace, no) include (left_from, left_to)
    where cause = 'revise';
create index branches_erase on pgmem.branches (session_id, namespace, no) where cause = 'erase';

create table pgmem.policies (
    session_id bigint not null,
    namespace  text collate "C" not null,
    no         bigint not null,
    policy     json not null,
    chain      bytea not null,
    created_at timestamptz not null,
    constraint policies_pkey primary key (session_id, namespace, no),
    constraint policies_tree_fkey foreign key (session_id, namespace) references pgmem.trees (session_id, namespace),
    constraint policies_no_positive check (no > 0)
);

-- Append-only, for the owner too. Row triggers also hold where changes arrive by logical replication.

create function pgmem.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception using
        message = tg_op || ' of ' || tg_table_schema || '.' || tg_table_name || ' refused: what is stored stays as it is',
        errcode = 'restrict_violation',
        hint = 'add a fact instead: revise or erase leave turns behind';
end
$$;

create trigger sessions_append_only before update or delete on pgmem.sessions
    for each row execute function pgmem.refuse_change();
create trigger sessions_no_truncate before truncate on pgmem.sessions
    for each statement execute function pgmem.refuse_change();
create trigger turns_append_only before update or delete on pgmem.turns
    for each row execute function pgmem.refuse_change();
create trigger turns_no_truncate before truncate on pgmem.turns
    for each statement execute function pgmem.refuse_change();
create trigger nodes_append_only before update or delete on pgmem.nodes
    for each row execute function pgmem.refuse_change();
create trigger nodes_no_truncate before truncate on pgmem.nodes
    for each statement execute function pgmem.refuse_change();
create trigger verdicts_append_only before update or delete on pgmem.verdicts
    for each row execute function pgmem.refuse_change();
create trigger verdicts_no_truncate before truncate on pgmem.verdicts
    for each statement execute function pgmem.refuse_change();
create trigger branches_append_only before update or delete on pgmem.branches
    for each row execute function pgmem.refuse_change();
create trigger branches_no_truncate before truncate on pgmem.branches
    for each statement execute function pgmem.refuse_change();
create trigger policies_append_only before update or delete on pgmem.policies
    for each row execute function pgmem.refuse_change();
create trigger policies_no_truncate before truncate on pgmem.policies
    for each statement execute function pgmem.refuse_change();
create trigger trees_kept before delete on pgmem.trees
    for each row execute function pgmem.refuse_change();
create trigger trees_no_truncate before truncate on pgmem.trees
    for each statement execute function pgmem.refuse_change();
create trigger trees_forward_only before update on pgmem.trees
    for each row when (
        new.session_id <> old.session_id or new.namespace <> old.namespace
        or new.last_no < old.last_no or new.version < old.version
        or new.branch < old.branch or new.open_branch < old.open_branch
    ) execute function pgmem.refuse_change();

alter table pgmem.sessions enable always trigger sessions_append_only;
alter table pgmem.sessions enable always trigger sessions_no_truncate;
alter table pgmem.turns enable always trigger turns_append_only;
alter table pgmem.turns enable always trigger turns_no_truncate;
alter table pgmem.nodes enable always trigger nodes_append_only;
alter table pgmem.nodes enable always trigger nodes_no_truncate;
alter table pgmem.verdicts enable always trigger verdicts_append_only;
alter table pgmem.verdicts enable always trigger verdicts_no_truncate;
alter table pgmem.branches enable always trigger branches_append_only;
alter table pgmem.branches enable always trigger branches_no_truncate;
alter table pgmem.policies enable always trigger policies_append_only;
alter table pgmem.policies enable always trigger policies_no_truncate;
alter table pgmem.trees enable always trigger trees_kept;
alter table pgmem.trees enable always trigger trees_no_truncate;
alter table pgmem.trees enable always trigger trees_forward_only;

-- What is left behind, as ranges of positions. It gives its tree back, and the views join turns and nodes to that: so it is
-- called once a tree, and never once a turn. It runs as its owner: who may read only the views can read through it.

create function pgmem.left_behind(
    in of_session bigint, in of_namespace text,
    out in_session bigint, out in_namespace text,
    out erased int8multirange, out abandoned int8multirange, out off_path int8multirange
) language sql stable cost 100000 security definer set search_path = pg_catalog, pg_temp as $$
    select of_session, of_namespace,
           coalesce(range_agg(int8range(b.left_from, b.left_to, '[]'))
                        filter (where b.cause = 'erase' and b.left_to is not null), '{}'),
           coalesce(range_agg(int8range(b.left_from, b.left_to, '[]'))
                        filter (where b.cause <> 'erase' and b.left_to is not null), '{}'),
           coalesce(range_agg(int8range(coalesce(b.base, 0), b.no, '()')), '{}')
      from pgmem.branches b
     where b.session_id = of_session and b.namespace = of_namespace
$$;

-- The views for people.

create view pgmem.node_log as
select s.tenant, s.key as session, t.session_id, t.namespace, n.no, n.branch, n.parent, n.first_no, n.last_no,
       case when v.outcome = 'fail' then 'failed'
            when lb.off_path @> n.no then 'abandoned'
            when v.outcome = 'pass' then 'compressed'
            else 'pending'
       end as status,
       n.kind, n.label, n.strategy, n.summary, n.cumulative, n.tokens, n.source_tokens, n.model, n.prompt_version,
       n.usage, v.outcome, v.reason, v.missing, v.judge, v.model as judge_model, v.created_at as judged_at,
       n.created_at
  from pgmem.trees t
  join pgmem.sessions s on s.session_id = t.session_id
 cross join lateral pgmem.left_behind(t.session_id, t.namespace) lb
  join pgmem.nodes n on n.session_id = lb.in_session and n.namespace = lb.in_namespace
  left join lateral (
        select v.outcome, v.reason, v.missing, v.judge, v.model, v.created_at
          from pgmem.verdicts v
         where v.session_id = n.session_id and v.namespace = n.namespace and v.node = n.no
         order by v.no desc
         limit 1
       ) v on true;

create view pgmem.turn_log as
select s.tenant, s.key as session, t.session_id, t.namespace, u.no, u.branch,
       case when lb.erased @> u.no then 'erased'
            when lb.abandoned @> u.no then 'abandoned'
            when u.no > t.boundary then 'active'
            else 'compressed'
       end as status,
       c.no as node, u.role, u.content, u.extra, u.raw, u.pinned, u.tokens, u.idempotency_key, u.created_at
  from pgmem.trees t
  join pgmem.sessions s on s.session_id = t.session_id
 cross join lateral pgmem.left_behind(t.session_id, t.namespace) lb
  join pgmem.turns u on u.session_id = lb.in_session and u.namespace = lb.in_namespace
  left join lateral (
        select n.no
          from pgmem.nodes n
         where n.session_id = u.session_id and n.namespace = u.namespace
           and n.last_no >= u.no and n.first_no <= u.no and u.no <= t.boundary
           and not lb.off_path @> n.no and not lb.erased @> u.no and not lb.abandoned @> u.no
         order by n.last_no
         limit 1
       ) c on true;
create index nodes_last on pgmem.nodes (session_id, namespace, last_no) include (first_no);

create view pgmem.branch_log as
select s.tenant, s.key as session, b.session_id, b.namespace, b.no, b.cause, b.base, b.left_from, b.left_to, b.note,
       b.actor, t.branch = b.no as active, b.created_at
  from pgmem.branches b
  join pgmem.trees t on t.session_id = b.session_id and t.namespace = b.namespace
  join pgmem.sessions s on s.session_id = b.session_id;

create view pgmem.log as
select s.tenant, s.key as session, f.session_id, f.namespace, f.no, f.fact, f.branch, f.what, f.body, f.chain,
       f.created_at
  from (
        select session_id, namespace, no, 'turn' as fact, branch, role as what, content as body, chain, created_at
          from pgmem.turns
         union all
        select session_id, namespace, no, 'node', branch, strategy, summary, chain, created_at from pgmem.nodes
         union all
        select session_id, namespace, no, 'verdict', null, outcome, reason, chain, created_at from pgmem.verdicts
         union all
        select session_id, namespace, no, 'branch', no, cause, note, chain, created_at from pgmem.branches
         union all
        select session_id, namespace, no, 'policy', null, 'policy', policy::text, chain, created_at
          from pgmem.policies
       ) f
  join pgmem.sessions s on s.session_id = f.session_id;

revoke all on function pgmem.left_behind(bigint, text) from public;

-- What `\d+` teaches.

comment on table pgmem.sessions is 'One row a conversation; never changed';
comment on column pgmem.sessions.session_id is 'The session''s number: what every other table leads with';
comment on column pgmem.sessions.tenant is 'Who owns the session';
comment on column pgmem.sessions.key is 'The caller''s name of the session, unique in its tenant';
comment on column pgmem.sessions.goal is 'What the session is for, as the caller put it when it was made';
comment on column pgmem.sessions.metadata is 'The caller''s own JSON, as it was given when the session was made';
comment on column pgmem.sessions.created_at is 'When the session was made';
comment on table pgmem.trees is 'One row a state tree: all that ever moves';
comment on column pgmem.trees.session_id is 'The session that the tree belongs to';
comment on column pgmem.trees.namespace is 'The memory space inside the session';
comment on column pgmem.trees.branch is 'The active branch: the no of its row in branches, 0 for the first';
comment on column pgmem.trees.open_branch is 'The newest branch that left turns behind: who last saw an older one may not append';
comment on column pgmem.trees.head is 'The node that the next Compress hangs from; null at the root';
comment on column pgmem.trees.boundary is 'Turns up to this position are behind a summary or left behind';
comment on column pgmem.trees.last_no is 'The newest fact''s position: facts are numbered from 1 without a hole';
comment on column pgmem.trees.version is 'Moves with head and branch, never with an added turn';
comment on column pgmem.trees.chain is 'The hash chain''s newest value, over all facts in order';
comment on table pgmem.turns is 'One row a message; never changed';
comment on column pgmem.turns.session_id is 'The session that the fact belongs to';
comment on column pgmem.turns.namespace is 'The memory space inside the session';
comment on column pgmem.turns.no is 'The fact''s position in its tree, over all kinds of fact: its name';
comment on column pgmem.turns.branch is 'The branch that the turn was added on';
comment on column pgmem.turns.role is 'system, user, assistant or tool';
comment on column pgmem.turns.content is 'The message''s text, for people; parts are joined by line breaks';
comment on column pgmem.turns.extra is 'The rest of the provider''s message, and content where it is not plain text';
comment on column pgmem.turns.raw is 'The whole message as escaped JSON, where it holds NUL or a lone surrogate; content and extra then show U+FFFD';
comment on column pgmem.turns.pinned is 'Shown verbatim in every context until its line is left';
comment on column pgmem.turns.tokens is 'Size in tokens, by the counter that was set';
comment on column pgmem.turns.idempotency_key is 'The caller''s name for this turn, unique in its tree';
comment on column pgmem.turns.chain is 'The hash chain''s value after this fact';
comment on column pgmem.turns.created_at is 'The database''s time of the statement that stored it';
comment on table pgmem.nodes is 'One row a summary; never changed';
comment on column pgmem.nodes.session_id is 'The session that the fact belongs to';
comment on column pgmem.nodes.namespace is 'The memory space inside the session';
comment on column pgmem.nodes.no is 'The fact''s position in its tree, over all kinds of fact: its name';
comment on column pgmem.nodes.branch is 'The branch that the node was made on';
comment on column pgmem.nodes.parent is 'The node before it on its branch; null at the root';
comment on column pgmem.nodes.first_no is 'The first turn that it covers';
comment on column pgmem.nodes.last_no is 'The last turn that it covers: the boundary while it is the head';
comment on column pgmem.nodes.kind is 'The caller''s word for what the summary is about';
comment on column pgmem.nodes.label is 'A short title';
comment on column pgmem.nodes.strategy is 'How the text was made: llm, tool_clear or given';
comment on column pgmem.nodes.summary is 'The text that the model is shown for the turns';
comment on column pgmem.nodes.cumulative is 'Whether it stands for all memory before it too';
comment on column pgmem.nodes.tokens is 'Size of the summary in tokens';
comment on column pgmem.nodes.source_tokens is 'Size of the turns that it covers in tokens';
comment on column pgmem.nodes.model is 'The model that wrote it';
comment on column pgmem.nodes.prompt_version is 'The prompt that asked for it';
comment on column pgmem.nodes.usage is 'What the model''s provider counted';
comment on column pgmem.nodes.chain is 'The hash chain''s value after this fact';
comment on column pgmem.nodes.created_at is 'The database''s time of the statement that stored it';
comment on table pgmem.verdicts is 'One row a judgement of a node; never changed';
comment on column pgmem.verdicts.session_id is 'The session that the fact belongs to';
comment on column pgmem.verdicts.namespace is 'The memory space inside the session';
comment on column pgmem.verdicts.no is 'The fact''s position in its tree, over all kinds of fact: its name';
comment on column pgmem.verdicts.node is 'The node that was judged';
comment on column pgmem.verdicts.outcome is 'pass or fail; the newest of a node counts';
comment on column pgmem.verdicts.reason is 'Why, in the judge''s words';
comment on column pgmem.verdicts.missing is 'What the summary lacks: a list of texts';
comment on column pgmem.verdicts.judge is 'Who judged';
comment on column pgmem.verdicts.model is 'The model that judged';
comment on column pgmem.verdicts.prompt_version is 'The prompt that asked for the verdict';
comment on column pgmem.verdicts.usage is 'What the model''s provider counted';
comment on column pgmem.verdicts.chain is 'The hash chain''s value after this fact';
comment on column pgmem.verdicts.created_at is 'The database''s time of the statement that stored it';
comment on table pgmem.branches is 'One row each time the head moved back; never changed';
comment on column pgmem.branches.session_id is 'The session that the fact belongs to';
comment on column pgmem.branches.namespace is 'The memory space inside the session';
comment on column pgmem.branches.no is 'The fact''s position in its tree, over all kinds of fact: its name';
comment on column pgmem.branches.cause is 'Why the head moved back: revise, reopen or erase';
comment on column pgmem.branches.base is 'The node that the branch starts from; null at the root';
comment on column pgmem.branches.left_from is 'The first position past the point that it went back to';
comment on column pgmem.branches.left_to is 'The last position left behind; null when no turn was';
comment on column pgmem.branches.note is 'What the next attempt should know';
comment on column pgmem.branches.actor is 'Who asked for it';
comment on column pgmem.branches.chain is 'The hash chain''s value after this fact';
comment on column pgmem.branches.created_at is 'The database''s time of the statement that stored it';
comment on table pgmem.policies is 'One row each time a namespace''s settings were set; never changed';
comment on column pgmem.policies.session_id is 'The session that the fact belongs to';
comment on column pgmem.policies.namespace is 'The memory space inside the session';
comment on column pgmem.policies.no is 'The fact''s position in its tree, over all kinds of fact: its name';
comment on column pgmem.policies.policy is 'The namespace''s compaction settings; the newest row counts';
comment on column pgmem.policies.chain is 'The hash chain''s value after this fact';
comment on column pgmem.policies.created_at is 'The database''s time of the statement that stored it';
comment on view pgmem.turn_log is 'Every turn with its status and the node that stands for it';
comment on view pgmem.node_log is 'Every node with its status and its newest verdict';
comment on view pgmem.branch_log is 'Every time the head moved back';
comment on view pgmem.log is 'All facts of all trees; order by session_id, namespace, no';
comment on function pgmem.left_behind(bigint, text) is 'A tree''s positions that Erase and Revise left behind, and those of nodes off the active path';
comment on function pgmem.refuse_change() is 'Raises: what is stored stays as it is';
comment on column pgmem.turn_log.tenant is 'Who owns the session';
comment on column pgmem.turn_log.session is 'The session''s key';
comment on column pgmem.turn_log.session_id is 'The session''s number';
comment on column pgmem.turn_log.namespace is 'The memory space inside the session';
comment on column pgmem.turn_log.no is 'The fact''s position in its tree: its name';
comment on column pgmem.turn_log.branch is 'The branch that the turn was added on';
comment on column pgmem.turn_log.status is 'Where the turn is: active, compressed, abandoned or erased';
comment on column pgmem.turn_log.node is 'The node on the active path that stands for the turn; null when none does';
comment on column pgmem.turn_log.role is 'system, user, assistant or tool';
comment on column pgmem.turn_log.content is 'The message''s text, for people; parts are joined by line breaks';
comment on column pgmem.turn_log.extra is 'The rest of the provider''s message, and content where it is not plain text';
comment on column pgmem.turn_log.raw is 'The whole message as escaped JSON, where it holds NUL or a lone surrogate; content and extra then show U+FFFD';
comment on column pgmem.turn_log.pinned is 'Shown verbatim in every context until its line is left';
comment on column pgmem.turn_log.tokens is 'Size in tokens, by the counter that was set';
comment on column pgmem.turn_log.idempotency_key is 'The caller''s name for this turn, unique in its tree';
comment on column pgmem.turn_log.created_at is 'The database''s time of the statement that stored it';
comment on column pgmem.node_log.tenant is 'Who owns the session';
comment on column pgmem.node_log.session is 'The session''s key';
comment on column pgmem.node_log.session_id is 'The session''s number';
comment on column pgmem.node_log.namespace is 'The memory space inside the session';
comment on column pgmem.node_log.no is 'The fact''s position in its tree: its name';
comment on column pgmem.node_log.branch is 'The branch that the node was made on';
comment on column pgmem.node_log.parent is 'The node before it on its branch; null at the root';
comment on column pgmem.node_log.first_no is 'The first turn that it covers';
comment on column pgmem.node_log.last_no is 'The last turn that it covers: the boundary while it is the head';
comment on column pgmem.node_log.status is 'What the node is worth: pending, compressed, failed or abandoned';
comment on column pgmem.node_log.kind is 'The caller''s word for what the summary is about';
comment on column pgmem.node_log.label is 'A short title';
comment on column pgmem.node_log.strategy is 'How the text was made: llm, tool_clear or given';
comment on column pgmem.node_log.summary is 'The text that the model is shown for the turns';
comment on column pgmem.node_log.cumulative is 'Whether it stands for all memory before it too';
comment on column pgmem.node_log.tokens is 'Size of the summary in tokens';
comment on column pgmem.node_log.source_tokens is 'Size of the turns that it covers in tokens';
comment on column pgmem.node_log.model is 'The model that wrote it';
comment on column pgmem.node_log.prompt_version is 'The prompt that asked for it';
comment on column pgmem.node_log.usage is 'What the model''s provider counted';
comment on column pgmem.node_log.outcome is 'What the newest verdict says: pass or fail; null when nobody judged';
comment on column pgmem.node_log.reason is 'Why, in the judge''s words';
comment on column pgmem.node_log.missing is 'What the summary lacks: a list of texts';
comment on column pgmem.node_log.judge is 'Who judged';
comment on column pgmem.node_log.judge_model is 'The model that judged';
comment on column pgmem.node_log.judged_at is 'When the newest verdict was stored';
comment on column pgmem.node_log.created_at is 'The database''s time of the statement that stored it';
comment on column pgmem.branch_log.tenant is 'Who owns the session';
comment on column pgmem.branch_log.session is 'The session''s key';
comment on column pgmem.branch_log.session_id is 'The session''s number';
comment on column pgmem.branch_log.namespace is 'The memory space inside the session';
comment on column pgmem.branch_log.no is 'The fact''s position in its tree: its name';
comment on column pgmem.branch_log.cause is 'Why the head moved back: revise, reopen or erase';
comment on column pgmem.branch_log.base is 'The node that the branch starts from; null at the root';
comment on column pgmem.branch_log.left_from is 'The first position past the point that it went back to';
comment on column pgmem.branch_log.left_to is 'The last position left behind; null when no turn was';
comment on column pgmem.branch_log.note is 'What the next attempt should know';
comment on column pgmem.branch_log.actor is 'Who asked for it';
comment on column pgmem.branch_log.active is 'Whether it is the branch that the tree is on';
comment on column pgmem.branch_log.created_at is 'The database''s time of the statement that stored it';
comment on column pgmem.log.tenant is 'Who owns the session';
comment on column pgmem.log.session is 'The session''s key';
comment on column pgmem.log.session_id is 'The session''s number';
comment on column pgmem.log.namespace is 'The memory space inside the session';
comment on column pgmem.log.no is 'The fact''s position in its tree: its name';
comment on column pgmem.log.fact is 'What it is: turn, node, verdict, branch or policy';
comment on column pgmem.log.branch is 'The branch that the fact was added on; null where its row names none';
comment on column pgmem.log.what is 'The turn''s role, the node''s strategy, the verdict''s outcome or the branch''s cause';
comment on column pgmem.log.body is 'The turn''s text, the summary, the reason, the note or the policy';
comment on column pgmem.log.chain is 'The hash chain''s value after this fact';
comment on column pgmem.log.created_at is 'The database''s time of the statement that stored it';
