-- Adds a verdict and moves nothing else. No row: there is no such node, or the tree has other facts than expected.
with tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.branch)
                          || timestamptz_send(statement_timestamp()))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and (%(last_no)s::bigint is null or t.last_no = %(last_no)s)
       and exists (
               select from pgmem.nodes n
                where n.session_id = t.session_id and n.namespace = t.namespace and n.no = %(node)s
           )
    returning t.last_no as no, t.chain
)
insert into pgmem.verdicts (session_id, namespace, no, node, outcome, reason, missing, judge, model, prompt_version, usage,
                            chain, created_at)
select %(session_id)s, %(namespace)s, tree.no, %(node)s, %(outcome)s, %(reason)s, %(missing)s::json, %(judge)s, %(model)s,
       %(prompt_version)s, %(usage)s::json, tree.chain, statement_timestamp()
  from tree
returning no, created_at
