"""What a step costs on a small network, where starting operations costs more than their arithmetic."""
