-- The newest node of a compaction that the context shows and nobody judged: whoever made it ended before the verdict.
select n.no
  from pgmem.node_log n
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.status = 'pending'
   and n.strategy = 'llm'
   and n.kind = %(kind)s
   and not exists (
           select from pgmem.node_log newer
            where newer.session_id = n.session_id and newer.namespace = n.namespace and newer.no > n.no
              and newer.cumulative and newer.status in ('pending', 'compressed')
       )
 order by n.no desc
 limit 1
