-- Adds a failing verdict of a node on the path and the branch that takes it, and what was built on it, off the path, if branch
-- and version are still as they were read. No row: they are not.
with before as materialized (
    select t.last_no, t.branch, t.chain
      from pgmem.trees t
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and t.branch = %(branch)s
       and t.version = %(version)s
       and (%(last_no)s::bigint is null or t.last_no = %(last_no)s)
       for no key update
),
judged as materialized (
    select before.last_no + 1 as no,
           sha256(before.chain || %(digest)s || int8send(before.last_no + 1) || int8send(before.branch)
                  || timestamptz_send(statement_timestamp())) as chain
      from before
),
reopened as materialized (
    select judged.no + 1 as no,
           sha256(judged.chain || %(branch_digest)s || int8send(judged.no + 1) || int8send(judged.no + 1)
                  || timestamptz_send(statement_timestamp()) || int8send(coalesce(%(base)s::bigint, 0))
                  || int8send(%(left_from)s) || int8send(0)) as chain
      from judged
),
moved as (
    update pgmem.trees as t
       set last_no = reopened.no,
           branch = reopened.no,
           head = %(base)s::bigint,
           boundary = %(boundary)s,
           version = t.version + 1,
           chain = reopened.chain
      from reopened
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
    returning t.branch
),
verdict as (
    insert into pgmem.verdicts (session_id, namespace, no, node, outcome, reason, missing, judge, model, prompt_version,
                                usage, chain, created_at)
    select %(session_id)s, %(namespace)s, judged.no, %(node)s, 'fail', %(reason)s, %(missing)s::json, %(judge)s, %(model)s,
           %(prompt_version)s, %(usage)s::json, judged.chain, statement_timestamp()
      from judged
      join moved on true
    returning no, created_at
),
branch as (
    insert into pgmem.branches (session_id, namespace, no, cause, base, left_from, left_to, note, actor, chain, created_at)
    select %(session_id)s, %(namespace)s, reopened.no, 'reopen', %(base)s::bigint, %(left_from)s, null, %(note)s, null,
           reopened.chain, statement_timestamp()
      from reopened
      join moved on true
    returning no
)
select verdict.no, verdict.created_at, branch.no as branch
  from verdict
  join branch on true
