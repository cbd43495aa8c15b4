-- Adds one turn to the tree that the caller last saw on a branch not left behind. No row: the tree is not there or moved on.
with tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.branch)
                          || timestamptz_send(statement_timestamp()))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and t.open_branch <= %(seen_branch)s
    returning t.last_no as no, t.branch, t.chain
)
insert into pgmem.turns (session_id, namespace, no, branch, role, content, extra, raw, pinned, tokens, chain, created_at)
select %(session_id)s, %(namespace)s, tree.no, tree.branch, %(role)s, %(content)s, %(extra)s::json, %(raw)s, false,
       %(tokens)s, tree.chain, statement_timestamp()
  from tree
returning no, branch, created_at
