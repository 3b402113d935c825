-- Gateways that say that they can't reach the Redis of some partitions. $1 seconds after which one is gone
SELECT gateway, partitions, since, extract(epoch FROM clock_timestamp() - since)::float8 AS for_s
FROM redis_unreachable WHERE seen > clock_timestamp() - $1::float8 * interval '1 second' ORDER BY since, gateway
