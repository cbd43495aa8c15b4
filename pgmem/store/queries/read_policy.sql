-- A tree's settings as they were added at a position.
select p.policy::text as policy
  from pgmem.policies p
 where p.session_id = %(session_id)s
   and p.namespace = %(namespace)s
   and p.no = %(no)s
