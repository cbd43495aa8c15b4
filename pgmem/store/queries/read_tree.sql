-- The tree row, and how many pinned turns it shows.
select t.branch, t.open_branch, t.head, t.boundary, t.last_no, t.version, t.chain,
       (select count(*)
          from pgmem.turns u
         where u.session_id = t.session_id and u.namespace = t.namespace and u.pinned
           and not exists (
                   select from pgmem.branches b
                    where b.session_id = u.session_id and b.namespace = u.namespace
                      and b.left_to >= u.no and b.left_from <= u.no
               )) as pinned
  from pgmem.trees t
 where t.session_id = %(session_id)s
   and t.namespace = %(namespace)s
