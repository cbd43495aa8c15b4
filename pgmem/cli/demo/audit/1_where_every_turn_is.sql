-- Where is every turn now? What the model is not sent any more is compressed or erased, never deleted.
select namespace, status, count(*) as turns, sum(tokens) as tokens, current_user as asked_by
  from pgmem.turn_log
 where tenant = 'demo' and session = '$SESSION'
 group by namespace, status
 order by namespace, status
