-- All that a tree shows, now or as of a fact: part 0 the tree, 1 nodes, 2 kept turns, 3 active turns.
-- A part has no more rows than it shows. No row at all: there is no such tree, or it has no such fact yet.
with recursive asked as (
    -- a failing verdict means the reopen that came with it
    select %(as_of)s::bigint + (
               select count(*)
                 from pgmem.verdicts v
                 join pgmem.branches b
                   on b.session_id = v.session_id and b.namespace = v.namespace and b.no = v.no + 1
                where v.session_id = %(session_id)s and v.namespace = %(namespace)s and v.no = %(as_of)s::bigint
                  and v.outcome = 'fail' and b.cause = 'reopen'
           ) as no
     where %(as_of)s::bigint is not null
),
tree as materialized (
    select t.branch, t.open_branch, t.head, t.boundary, t.last_no, t.version
      from pgmem.trees t
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and %(as_of)s::bigint is null
     union all
    select coalesce(b.no, 0), 0, h.no,
           case when b.cause = 'erase' and n.no is null then b.no else coalesce(h.last_no, 0) end, asked.no, 0
      from asked
      join pgmem.trees t
        on t.session_id = %(session_id)s and t.namespace = %(namespace)s and asked.no between 0 and t.last_no
      left join lateral (
            select b.no, b.base, b.cause
              from pgmem.branches b
             where b.session_id = %(session_id)s and b.namespace = %(namespace)s and b.no <= asked.no
             order by b.no desc
             limit 1
           ) b on true
      left join lateral (
            select n.no
              from pgmem.nodes n
             where n.session_id = %(session_id)s and n.namespace = %(namespace)s
               and n.no <= asked.no and n.no > coalesce(b.no, 0)
             order by n.no desc
             limit 1
           ) n on true
      left join pgmem.nodes h
        on h.session_id = %(session_id)s and h.namespace = %(namespace)s and h.no = coalesce(n.no, b.base)
),
path as (
    select n.no, n.parent, n.cumulative, 1 as depth
      from tree
      join pgmem.nodes n on n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = tree.head
     union all
    select n.no, n.parent, n.cumulative, path.depth + 1
      from path
      join pgmem.nodes n on n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = path.parent
     where not path.cumulative
       and path.depth < %(most_nodes)s
),
oldest_pinned as materialized (
    select min(u.no) as no
      from pgmem.turns u
     where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.pinned
),
-- The stretches between what was left behind, newest first, as far down as something of them is shown.
-- Ranges are nested or apart, so the newest one below a stretch is its whole gap. The first row only starts the walk.
live as (
    select null::bigint as low, null::bigint as high, tree.last_no as next_high, false as has_user
      from tree
     union all
    select coalesce(gap.left_to, 0) + 1, live.next_high, gap.left_from - 1,
           live.has_user or exists (
               select from pgmem.turns u
                where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.role = 'user'
                  and u.no > coalesce(gap.left_to, 0) and u.no <= live.next_high
           )
      from live
     cross join tree
     cross join oldest_pinned
      left join lateral (
            select b.left_from, b.left_to
              from pgmem.branches b
             where b.session_id = %(session_id)s and b.namespace = %(namespace)s
               and b.left_to <= least(live.next_high, tree.last_no - 1)
             order by b.left_to desc
             limit 1
           ) gap on true
     where live.next_high > 0
       and (live.next_high > tree.boundary or live.next_high >= oldest_pinned.no or not live.has_user)
),
kept as (
    select u.no
      from live
     cross join lateral (
            select u.no
              from pgmem.turns u
             where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.pinned
               and u.no >= live.low and u.no <= live.high
           ) u
     union
    (
    select u.no
      from live
     cross join lateral (
            select u.no
              from pgmem.turns u
             where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.role = 'user'
               and u.no >= live.low and u.no <= live.high
             order by u.no desc
             limit 1
           ) u
     order by u.no desc
     limit 1
    )
)
select 0 as part, tree.last_no as no, tree.branch, tree.open_branch as link, tree.head as low, tree.boundary as high,
       tree.version as amount, null::integer as tokens, null::boolean as flag, null::text as word, null::text as title,
       null::text as body, null::text as extra, null::text as raw, null::text as mark, null::timestamptz as created_at
  from tree
 union all
select 1, n.no, n.branch, n.parent, n.first_no, n.last_no, n.source_tokens, n.tokens, n.cumulative, n.kind, n.label,
       n.summary, n.model, n.prompt_version, n.strategy, n.created_at
  from path
  join pgmem.nodes n on n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = path.no
 union all
select 2, u.no, u.branch, null, null, null, null, u.tokens, u.pinned, u.role, null, u.content, u.extra::text, u.raw,
       u.idempotency_key, u.created_at
  from tree
 cross join kept
  join pgmem.turns u on u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.no = kept.no
 where kept.no <= tree.boundary
 union all
select 3, u.no, u.branch, null, null, null, null, u.tokens, u.pinned, u.role, null, u.content, u.extra::text, u.raw,
       u.idempotency_key, u.created_at
  from tree
 cross join live
 cross join lateral (
        select u.no, u.branch, u.tokens, u.pinned, u.role, u.content, u.extra, u.raw, u.idempotency_key, u.created_at
          from pgmem.turns u
         where u.session_id = %(session_id)s and u.namespace = %(namespace)s
           and u.no > greatest(tree.boundary, live.low - 1) and u.no <= live.high
         order by u.no
         limit %(most_turns)s
       ) u
 where live.high > tree.boundary
 order by part, no
