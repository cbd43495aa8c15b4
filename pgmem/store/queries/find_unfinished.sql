-- The oldest node of a compaction on the active path that a model wrote and nobody judged: whoever made it ended before the verdict.
select n.no
  from pgmem.node_log n
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.status = 'pending'
   and n.strategy = 'llm'
   and n.kind = %(kind)s
 order by n.no
 limit 1
