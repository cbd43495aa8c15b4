-- Where going back to a position leads: the last node before it, the first live turn past it, and whether its turn is live.
with recursive tree as materialized (
    select t.branch, t.version, t.head, t.last_no
      from pgmem.trees t
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
),
path as (
    select n.no, n.parent, n.last_no
      from tree
      join pgmem.nodes n on n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = tree.head
     union all
    select n.no, n.parent, n.last_no
      from path
      join pgmem.nodes n on n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = path.parent
     where path.last_no > %(position)s
),
base as (
    select path.no, path.last_no
      from path
     where path.last_no <= %(position)s
     order by path.no desc
     limit 1
),
left_behind as materialized (
    select coalesce(range_agg(int8range(b.left_from, b.left_to, '[]')), '{}') as positions
      from pgmem.branches b
     where b.session_id = %(session_id)s
       and b.namespace = %(namespace)s
       and b.left_to is not null
)
select tree.branch, tree.version, base.no as base, coalesce(base.last_no, 0) as boundary,
       coalesce(live.no, tree.last_no + 1) as left_from,
       exists (
           select from pgmem.turns u
            where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.no = %(position)s
              and not left_behind.positions @> u.no
       ) as is_live_turn
  from tree
 cross join left_behind
  left join base on true
  left join lateral (
        select u.no
          from pgmem.turns u
         where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.no > %(position)s
           and not left_behind.positions @> u.no
         order by u.no
         limit 1
       ) live on true
