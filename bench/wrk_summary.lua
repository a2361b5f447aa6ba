-- Prints the counters of wrk as one line of JSON. It runs once, at the end, so it slows no request down.
function done(summary, latency, requests)
   local errors = summary.errors
   print(string.format(
      '{"requests":%d,"bytes":%d,"microseconds":%d,"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}',
      summary.requests, summary.bytes, summary.duration,
      errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
