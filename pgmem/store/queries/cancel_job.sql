-- Cancels a job that waits, or asks the worker that runs it to stop; null when it is neither.
select pgmem_queue.procrastinate_cancel_job_v1(%(job)s, true, false) as id
