-- The newest attempt that a Revise can leave: the head, or a failed node whose turns are active.
select n.no
  from pgmem.trees t
  join pgmem.node_log n on n.session_id = t.session_id and n.namespace = t.namespace
 where t.session_id = %(session_id)s
   and t.namespace = %(namespace)s
   and (n.no = t.head
        or (n.status = 'failed'
            and exists (
                    select from pgmem.turn_log u
                     where u.session_id = n.session_id and u.namespace = n.namespace and u.no = n.first_no
                       and u.status = 'active'
                )))
 order by n.no desc
 limit 1
