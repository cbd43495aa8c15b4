-- A node with its status, what was last said of it, and the tree as a verdict or a Revise expects it.
select n.no, n.branch, n.parent, n.first_no, n.last_no, n.kind, n.label, n.strategy, n.summary, n.cumulative, n.tokens,
       n.source_tokens, n.model, n.prompt_version, n.created_at, n.status, n.outcome, n.reason, t.branch as tree_branch, t.version, t.last_no as tree_last_no,
       coalesce(p.last_no, 0) as parent_last_no,
       exists (
           select from pgmem.turn_log u
            where u.session_id = n.session_id and u.namespace = n.namespace and u.no = n.first_no and u.status = 'active'
       ) as turns_active
  from pgmem.node_log n
  join pgmem.trees t on t.session_id = n.session_id and t.namespace = n.namespace
  left join pgmem.nodes p on p.session_id = n.session_id and p.namespace = n.namespace and p.no = n.parent
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.no = %(node)s
