// The code interpreter's SDK for programs in other folders: node resolves packages by folder.
export * from '@e2b/code-interpreter'
