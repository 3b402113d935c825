"""What a tenant notices while another one attacks the gateway that they share."""
