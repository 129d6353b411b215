// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

// Swagger is the OpenAPI 2.0 document of the HTTP API.
const Swagger = `{
  "swagger": "2.0",
  "info": {"title": "Operator API", "version": "v1beta", "description": "Health and metrics of the operator"},
  "basePath": "/v1",
  "produces": ["application/json"],
  "paths": {
    "/healthz": {"get": {"summary": "Whether the operator is healthy", "operationId": "GetHealthz", "produces": ["text/plain"],
      "responses": {"200": {"description": "healthy"}, "500": {"description": "unhealthy", "schema": {"type": "string"}}, "501": {"description": "Kubernetes is off"}}}},
    "/metrics": {"get": {"summary": "All metrics", "operationId": "GetMetrics",
      "responses": {"200": {"description": "metrics", "schema": {"type": "array", "items": {"$ref": "#/definitions/Metric"}}}, "500": {"description": "metrics cannot be gathered"}}}},
    "/cluster": {"get": {"summary": "Remote clusters", "operationId": "GetCluster",
      "responses": {"200": {"description": "remote clusters", "schema": {"type": "array", "items": {"$ref": "#/definitions/RemoteCluster"}}}}}},
    "/livez": {"get": {"summary": "Whether the process answers", "produces": ["text/plain"], "responses": {"200": {"description": "it does"}}}},
    "/readyz": {"get": {"summary": "Whether this replica could take over", "produces": ["text/plain"],
      "responses": {"200": {"description": "it could"}, "503": {"description": "why it could not", "schema": {"type": "string"}}}}},
    "/leader": {"get": {"summary": "Who leads, as this replica sees it",
      "responses": {"200": {"description": "the election", "schema": {"$ref": "#/definitions/Election"}}}}}
  },
  "definitions": {
    "Metric": {"type": "object", "properties": {"name": {"type": "string"}, "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "value": {"type": "number"}}},
    "RemoteCluster": {"type": "object", "properties": {"name": {"type": "string"}, "connected": {"type": "boolean"}, "ready": {"type": "boolean"}, "status": {"type": "string"},
      "num-failures": {"type": "integer"}, "last-failure": {"type": "string", "format": "date-time"}, "num-shared-services": {"type": "integer"},
      "config": {"type": "object", "properties": {"required": {"type": "boolean"}, "retrieved": {"type": "boolean"}, "cluster-id": {"type": "integer"}, "kvstoremesh": {"type": "boolean"},
        "sync-canaries": {"type": "boolean"}, "service-exports-enabled": {"type": "boolean"}}},
      "synced": {"type": "object", "properties": {"nodes": {"type": "boolean"}, "endpoints": {"type": "boolean"}, "identities": {"type": "boolean"}, "services": {"type": "boolean"}}}}},
    "Election": {"type": "object", "properties": {"lease": {"type": "string"}, "identity": {"type": "string"}, "holder": {"type": "string"},
      "leading": {"type": "boolean"}, "since": {"type": "string", "format": "date-time"}, "transitions": {"type": "integer"}}}
  }
}
`

// DocsPage is the page with links to the document and the endpoints.
const DocsPage = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Operator API</title></head>
<body>
<h1>Operator API</h1>
<p>The document of this API is at <a href="/swagger.json">/swagger.json</a>.</p>
<ul>
<li><a href="/v1/healthz">/v1/healthz</a>: whether the operator is healthy</li>
<li><a href="/v1/metrics">/v1/metrics</a>: all metrics</li>
<li><a href="/v1/cluster">/v1/cluster</a>: remote clusters</li>
<li><a href="/v1/livez">/v1/livez</a>: whether the process answers</li>
<li><a href="/v1/readyz">/v1/readyz</a>: whether this replica could take over</li>
<li><a href="/v1/leader">/v1/leader</a>: who leads</li>
</ul>
</body>
</html>
`
