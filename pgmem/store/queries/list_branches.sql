-- A page of a tree's branches in order.
select b.no, b.cause, b.base, b.left_from, b.left_to, b.note, b.actor, b.created_at
  from pgmem.branches b
 where b.session_id = %(session_id)s
   and b.namespace = %(namespace)s
   and b.no > %(after)s
 order by b.no
 limit %(most)s
