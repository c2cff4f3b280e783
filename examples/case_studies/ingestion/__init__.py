"""Big-data ingestion: any topic into an analytics store, and the newest answered from the stream."""
