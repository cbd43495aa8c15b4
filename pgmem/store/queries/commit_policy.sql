-- Adds a tree's settings as a fact, unless its newest ones are the same; gives the position of those that count, the tree's newest
-- position, and whether as many turns are active as they say. No row: there is no such tree.
with newest as materialized (
    select p.no, p.policy::text as policy
      from pgmem.policies p
     where p.session_id = %(session_id)s and p.namespace = %(namespace)s
     order by p.no desc
     limit 1
),
tree as (
    update pgmem.trees as t
       set last_no = t.last_no + 1,
           chain = sha256(t.chain || %(digest)s || int8send(t.last_no + 1) || int8send(t.branch)
                          || timestamptz_send(statement_timestamp()))
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and not exists (select from newest where newest.policy = %(policy)s)
    returning t.last_no as no, t.chain
),
added as (
    insert into pgmem.policies (session_id, namespace, no, policy, chain, created_at)
    select %(session_id)s, %(namespace)s, tree.no, %(policy)s::json, tree.chain, statement_timestamp()
      from tree
    returning no
)
select p.no, p.last_no,
       (select count(*)
          from pgmem.trees t
         cross join lateral (
                select
                  from pgmem.turns u
                 where u.session_id = t.session_id and u.namespace = t.namespace and u.no > t.boundary
                   and not exists (
                           select
                             from pgmem.branches b
                            where b.session_id = u.session_id and b.namespace = u.namespace
                              and b.left_to >= u.no and b.left_from <= u.no
                       )
                 order by u.no
                 limit %(threshold)s
               ) u
         where t.session_id = %(session_id)s and t.namespace = %(namespace)s) >= %(threshold)s as due
  from (
        select added.no, added.no as last_no
          from added
         union all
        select newest.no, t.last_no
          from newest
          join pgmem.trees t on t.session_id = %(session_id)s and t.namespace = %(namespace)s
         where newest.policy = %(policy)s
       ) p
