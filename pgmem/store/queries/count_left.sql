-- How many turns a branch left behind when it began: those in its range that no branch before it had left.
select count(*) as turns
  from pgmem.branches b
 cross join lateral (
        -- an Erase left all before it
        select coalesce((select o.no
                           from pgmem.branches o
                          where o.session_id = b.session_id and o.namespace = b.namespace and o.cause = 'erase' and o.no < b.no
                          order by o.no desc
                          limit 1), 0) as no
       ) erased
  join pgmem.turns u
    on u.session_id = b.session_id and u.namespace = b.namespace
   and u.no >= b.left_from and u.no <= b.left_to and u.no > erased.no
 where b.session_id = %(session_id)s
   and b.namespace = %(namespace)s
   and b.no = %(branch)s
   and not exists (
           select from pgmem.branches o
            where o.session_id = b.session_id and o.namespace = b.namespace
              and o.no > erased.no and o.no < b.no and u.no >= o.left_from and u.no <= o.left_to
       )
