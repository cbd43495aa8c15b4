-- The namespaces of a session, in order, with the facts that each holds.
select t.namespace, t.last_no
  from pgmem.trees t
 where t.session_id = %(session_id)s
 order by t.namespace
