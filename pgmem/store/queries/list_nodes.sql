-- A page of a tree's nodes in order, with their status.
select n.no, n.branch, n.parent, n.first_no, n.last_no, n.kind, n.label, n.strategy, n.summary, n.cumulative, n.tokens,
       n.source_tokens, n.model, n.prompt_version, n.created_at, n.status
  from pgmem.node_log n
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.no > %(after)s
 order by n.no
 limit %(most)s
