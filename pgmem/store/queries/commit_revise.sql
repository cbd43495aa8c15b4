-- Goes back to a point and starts a branch there, if branch and version are still as they were read. Turns past the point that
-- came since are left behind too. No row: the tree is not as it was read.
with tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           branch = t.last_no + 1,
           open_branch = case when %(leaves_turns)s and %(left_from)s <= t.last_no then t.last_no + 1 else t.open_branch end,
           head = %(base)s::bigint,
           boundary = %(boundary)s,
           version = t.version + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.last_no + 1)
                          || timestamptz_send(statement_timestamp()) || int8send(coalesce(%(base)s::bigint, 0))
                          || int8send(%(left_from)s)
                          || int8send(case when %(leaves_turns)s and %(left_from)s <= t.last_no then t.last_no else 0 end))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and t.branch = %(branch)s
       and t.version = %(version)s
    returning t.last_no as no, t.open_branch, t.chain
)
insert into pgmem.branches (session_id, namespace, no, cause, base, left_from, left_to, note, actor, chain, created_at)
select %(session_id)s, %(namespace)s, tree.no, 'revise', %(base)s::bigint, %(left_from)s,
       case when tree.open_branch = tree.no then tree.no - 1 end, %(note)s, %(actor)s, tree.chain, statement_timestamp()
  from tree
returning no, cause, base, left_from, left_to, note, actor, created_at
