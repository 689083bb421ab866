"""What operators watch: status, alarms, capacity."""
