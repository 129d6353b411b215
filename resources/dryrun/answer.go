// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// onlyJSON takes other formats out of an Accept header, and leaves what it says
// about the shape.
func onlyJSON(accept string) string {
	var kept []string
	for part := range strings.SplitSeq(accept, ",") {
		if part = strings.TrimSpace(part); strings.HasPrefix(part, runtime.ContentTypeJSON) && !strings.Contains(part, "as=Table") {
			kept = append(kept, part)
		}
	}
	return cmp.Or(strings.Join(kept, ","), runtime.ContentTypeJSON)
}

// metadataOnly reports whether a request asks for metadata alone.
func metadataOnly(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shaped is an object in the shape that a request asks for.
func shaped(req *http.Request, content map[string]any) map[string]any {
	if !metadataOnly(req) {
		return content
	}
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": content["metadata"]}
}

// emptyCollection is the answer to a list or a watch of a resource that exists
// in the plan only.
func emptyCollection(req *http.Request, t Target, watches bool) *http.Response {
	if !watches {
		return answer(req, http.StatusOK, map[string]any{
			"kind": t.Resource.Resource + "List", "apiVersion": t.Resource.GroupVersion().String(), "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{},
		})
	}
	var events []byte
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		events = []byte(`{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1","annotations":{"` +
			metav1.InitialEventsAnnotationKey + `":"true"}}}}` + "\n")
	}
	resp := answer(req, http.StatusOK, nil)
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	resp.Body = &silence{initial: bytes.NewReader(events), ctx: req.Context(), closed: make(chan struct{})}
	return resp
}

// silence is the body of a watch that has initial events and then none until it is
// closed.
type silence struct {
	initial *bytes.Reader
	ctx     context.Context
	once    sync.Once
	closed  chan struct{}
}

func (s *silence) Read(p []byte) (int, error) {
	if s.initial.Len() > 0 {
		return s.initial.Read(p)
	}
	select {
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	case <-s.closed:
		return 0, io.EOF
	}
}

func (s *silence) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// answer is an answer as an API server gives it.
func answer(req *http.Request, code int, content map[string]any) *http.Response {
	text, err := encode(content)
	if err != nil {
		return refusal(req, apierrors.NewInternalError(err))
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)), Request: req,
	}
}

func refusal(req *http.Request, err error) *http.Response {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if convertErr != nil {
		content = map[string]any{"kind": "Status", "apiVersion": "v1", "status": metav1.StatusFailure, "message": err.Error(), "code": int64(s.Code)}
	}
	return answer(req, int(s.Code), content)
}
