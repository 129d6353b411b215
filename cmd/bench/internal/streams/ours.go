// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// newStream makes our stream of pods with the fields that the budget names.
func newStream(url string) (*stream.Stream[streamtest.BudgetPod], error) {
	connect := streamtest.ConnectWith(&rest.Config{Host: url}, &http.Client{Transport: &http.Transport{}})
	return stream.New(stream.NewSource(connect), streamtest.BudgetPods())
}

// storeByNode returns the store once it is complete, with an index by node.
func storeByNode(ctx context.Context, s *stream.Stream[streamtest.BudgetPod]) (*stream.Store[streamtest.BudgetPod], error) {
	store, err := s.Store(ctx)
	if err != nil {
		return nil, err
	}
	stream.IndexKeys(store, stream.NewIndex(byNode, func(p *streamtest.BudgetPod, add func(slim.String)) { add(p.Spec.NodeName) }))
	return store, nil
}
