// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"context"
	"io"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/stream"
)

// Connect returns how streams reach the server: without a network, so that they
// run in a bubble of testing/synctest.
func (s *Server) Connect() stream.Connect { return ConnectTo(Transport(s)) }

// Transport returns a RoundTripper that calls the handler, in the same process.
func Transport(handler http.Handler) http.RoundTripper { return &transport{handler} }

// ConnectTo returns how streams make requests through a RoundTripper.
func ConnectTo(rt http.RoundTripper) stream.Connect {
	return ConnectWith(&rest.Config{Host: "http://server.test"}, &http.Client{Transport: rt})
}

// ConnectWith returns how streams make requests as a rest.Config says, through
// this client.
func ConnectWith(config *rest.Config, client *http.Client) stream.Connect {
	config = rest.CopyConfig(config)
	config.APIPath = "/"
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1
	rc, err := rest.RESTClientForConfigAndClient(config, client)
	return func(context.Context) (rest.Interface, error) { return rc, err }
}

// transport is a RoundTripper that calls a handler.
type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. It returns with the header; the body
// is what the handler goes on to write.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, body: writer, started: make(chan *http.Response, 1)}
	stop := context.AfterFunc(ctx, func() { writer.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer cancel()
		defer stop()
		defer writer.Close()
		t.handler.ServeHTTP(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
	}()
	select {
	case answer := <-w.started:
		answer.Body, answer.Request = pipeBody{reader, cancel}, r
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(r.Context())
	}
}

// pipeBody ends the handler's context when it is closed.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipeWriter is the ResponseWriter at the other end.
type pipeWriter struct {
	header  http.Header
	body    *io.PipeWriter
	once    sync.Once
	started chan *http.Response
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.started <- &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: w.header.Clone(), ContentLength: -1,
		}
	})
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher: nothing is held back but the header.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }
