// The SDK for suites in other folders: node resolves packages by folder.
export * from 'e2b'
