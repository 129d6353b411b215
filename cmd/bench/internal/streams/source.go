// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// source is a ListerWatcher whose objects are there before they are asked for.
// There are two versions of each, in turn: when one comes again, no client has it
// any more.
type source struct {
	versions [2][]*carrier
	events   chan watch.Event
}

var _ cache.ListerWatcher = (*source)(nil)

// sourceBuffer is as much as our reader of a watch has; client-go's has none.
const sourceBuffer = 64

func newSource() *source {
	s := &source{events: make(chan watch.Event, sourceBuffer)}
	namespace := "default"
	interned := slim.MakeString(namespace)
	for version := range s.versions {
		for i := range fanOutKeys {
			c := &carrier{}
			c.Name, c.Namespace, c.ResourceVersion = fmt.Sprintf("pod-%07d", i), namespace, strconv.Itoa(1+version)
			c.slim.Name, c.slim.Namespace = c.Name, interned
			s.versions[version] = append(s.versions[version], c)
		}
	}
	return s
}

// update sends the n-th update of all keys.
func (s *source) update(ctx context.Context, n int) {
	for _, c := range s.versions[(n+1)%2] {
		select {
		case s.events <- watch.Event{Type: watch.Modified, Object: c}:
		case <-ctx.Done():
			return
		}
	}
}

// IsWatchListSemanticsUnSupported makes a Reflector list.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *source) List(metav1.ListOptions) (runtime.Object, error) {
	return &carriers{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.versions[0]}, nil
}

// Watch implements cache.ListerWatcher.
func (s *source) Watch(metav1.ListOptions) (watch.Interface, error) { return s, nil }

// Stop implements watch.Interface. Events end with the context of update.
func (s *source) Stop() {}

// ResultChan implements watch.Interface.
func (s *source) ResultChan() <-chan watch.Event { return s.events }

// carriers is a list of them.
type carriers struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*carrier
}

// DeepCopyObject implements runtime.Object. No list is changed here.
func (c *carriers) DeepCopyObject() runtime.Object { return c }
