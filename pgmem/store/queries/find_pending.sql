-- The newest node that nobody judged.
select n.no
  from pgmem.node_log n
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.status = 'pending'
 order by n.no desc
 limit 1
