-- Leaves all turns so far behind and starts a branch at the root, or at the head if its summary is kept.
with tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           branch = t.last_no + 1,
           open_branch = t.last_no + 1,
           head = case when %(keep_summary)s then t.head end,
           boundary = t.last_no + 1,
           version = t.version + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.last_no + 1)
                          || timestamptz_send(statement_timestamp())
                          || int8send(case when %(keep_summary)s then coalesce(t.head, 0) else 0 end)
                          || int8send(1) || int8send(t.last_no))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
    returning t.last_no as no, t.head as base, t.chain
)
insert into pgmem.branches (session_id, namespace, no, cause, base, left_from, left_to, note, actor, chain, created_at)
select %(session_id)s, %(namespace)s, tree.no, 'erase', tree.base, 1, nullif(tree.no - 1, 0), null, %(actor)s, tree.chain,
       statement_timestamp()
  from tree
returning no, cause, base, left_from, left_to, note, actor, created_at
