-- Stages: which step a flow over a session is in, and its state. And all verdicts, for who may read the views only.

create table pgmem.stages (
    session_id bigint not null,
    flow       text collate "C" not null,
    no         bigint not null,
    step       text collate "C" not null,
    entered    text[] not null,
    state      json not null,
    created_at timestamptz not null,
    constraint stages_pkey primary key (session_id, flow, no),
    constraint stages_session_fkey foreign key (session_id) references pgmem.sessions (session_id),
    constraint stages_no_positive check (no > 0),
    constraint stages_flow_length check (char_length(flow) between 1 and 128),
    constraint stages_step_length check (char_length(step) between 1 and 128)
);

create trigger stages_append_only before update or delete on pgmem.stages
    for each row execute function pgmem.refuse_change();
create trigger stages_no_truncate before truncate on pgmem.stages
    for each statement execute function pgmem.refuse_change();

alter table pgmem.stages enable always trigger stages_append_only;
alter table pgmem.stages enable always trigger stages_no_truncate;

create view pgmem.stage_log as
select s.tenant, s.key as session, g.session_id, g.flow, g.no, g.step, g.entered, g.state, g.created_at
  from pgmem.stages g
  join pgmem.sessions s on s.session_id = g.session_id;

create view pgmem.verdict_log as
select s.tenant, s.key as session, v.session_id, v.namespace, v.no, v.node, v.outcome, v.reason, v.missing, v.judge,
       v.model, v.prompt_version, v.usage, v.created_at
  from pgmem.verdicts v
  join pgmem.sessions s on s.session_id = v.session_id;

comment on table pgmem.stages is 'One row each time an exchange left a flow in another step or state; never changed';
comment on column pgmem.stages.session_id is 'The session that the flow is over';
comment on column pgmem.stages.flow is 'The flow''s name: a session may have several';
comment on column pgmem.stages.no is 'The row''s position in its flow, from 1 without a hole; the newest counts';
comment on column pgmem.stages.step is 'The step that the flow is in';
comment on column pgmem.stages.entered is 'The steps that were entered since the row before, in order';
comment on column pgmem.stages.state is 'The flow''s state, a JSON object';
comment on column pgmem.stages.created_at is 'The database''s time of the statement that stored it';
comment on view pgmem.stage_log is 'Every step and state that a flow was saved with';
comment on column pgmem.stage_log.tenant is 'Who owns the session';
comment on column pgmem.stage_log.session is 'The session''s key';
comment on column pgmem.stage_log.session_id is 'The session''s number';
comment on column pgmem.stage_log.flow is 'The flow''s name';
comment on column pgmem.stage_log.no is 'The row''s position in its flow; the newest counts';
comment on column pgmem.stage_log.step is 'The step that the flow is in';
comment on column pgmem.stage_log.entered is 'The steps that were entered since the row before, in order';
comment on column pgmem.stage_log.state is 'The flow''s state, a JSON object';
comment on column pgmem.stage_log.created_at is 'The database''s time of the statement that stored it';
comment on view pgmem.verdict_log is 'Everything that a judge said of a node';
comment on column pgmem.verdict_log.tenant is 'Who owns the session';
comment on column pgmem.verdict_log.session is 'The session''s key';
comment on column pgmem.verdict_log.session_id is 'The session''s number';
comment on column pgmem.verdict_log.namespace is 'The memory space inside the session';
comment on column pgmem.verdict_log.no is 'The fact''s position in its tree: its name';
comment on column pgmem.verdict_log.node is 'The node that was judged';
comment on column pgmem.verdict_log.outcome is 'pass or fail; the newest of a node counts';
comment on column pgmem.verdict_log.reason is 'Why, in the judge''s words';
comment on column pgmem.verdict_log.missing is 'What the summary lacks: a list of texts';
comment on column pgmem.verdict_log.judge is 'Who judged';
comment on column pgmem.verdict_log.model is 'The model that judged';
comment on column pgmem.verdict_log.prompt_version is 'The prompt that asked for the verdict';
comment on column pgmem.verdict_log.usage is 'What the model''s provider counted';
comment on column pgmem.verdict_log.created_at is 'The database''s time of the statement that stored it';
