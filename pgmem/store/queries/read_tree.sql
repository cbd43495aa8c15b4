-- The tree row, and how many pinned turns it shows.
select t.branch, t.open_branch, t.head, t.boundary, t.last_no, t.version, t.chain,
       (select count(*)
          from pgmem.turns u
         where u.session_id = t.session_id and u.namespace = t.namespace and u.pinned
           and u.no > coalesce((select e.no
                                  from pgmem.branches e
                                 where e.session_id = t.session_id and e.namespace = t.namespace and e.cause = 'erase'
                                 order by e.no desc
                                 limit 1), 0)
           and not exists (
                   select from pgmem.branches b
                    where b.session_id = u.session_id and b.namespace = u.namespace
                      and b.left_to >= u.no and b.left_from <= u.no
               )) as pinned
  from pgmem.trees t
 where t.session_id = %(session_id)s
   and t.namespace = %(namespace)s
