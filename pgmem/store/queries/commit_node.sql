-- Adds a node and moves head and boundary to it, if branch and version are still as they were read. No row: they are not.
with tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           head = t.last_no + 1,
           boundary = %(covers_to)s,
           version = t.version + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.branch)
                          || timestamptz_send(statement_timestamp()))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and t.branch = %(branch)s
       and t.version = %(version)s
    returning t.last_no as no, t.branch, t.chain
)
insert into pgmem.nodes (session_id, namespace, no, branch, parent, first_no, last_no, kind, label, strategy, summary,
                         cumulative, tokens, source_tokens, model, prompt_version, usage, chain, created_at)
select %(session_id)s, %(namespace)s, tree.no, tree.branch, %(parent)s, %(covers_from)s, %(covers_to)s, %(kind)s, %(label)s,
       %(strategy)s, %(summary)s, %(cumulative)s, %(tokens)s, %(source_tokens)s, %(model)s, %(prompt_version)s,
       %(usage)s::json, tree.chain, statement_timestamp()
  from tree
returning no, branch, created_at
