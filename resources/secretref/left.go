// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// Left is what is kept of a Secret in a namespace to which nothing is copied: whose copy it is, if it was left there. D tells the streams of
// duties from one another.
type Left[D any] struct {
	CopyMeta `json:"metadata"`
}

// ProvideLeft offers the stream of a duty of the Secrets in a namespace.
func ProvideLeft[D any](namespace func(envoyres.Config) string) cell.Cell {
	return stream.ProvideSelected(stream.Metadata[Left[D]](secretsResource), func(k stream.Kind[Left[D]], c envoyres.Config) stream.Kind[Left[D]] {
		return k.InNamespace(namespace(c))
	}, stream.OnDemand(), stream.WithHealth(nil))
}

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// LeftRBAC are the permissions for ProvideLeft.
var LeftRBAC = k8s.OptionalRBAC(k8s.Allow("list,watch", secretsResource.GroupResource()))

// role is what the API server tells that is allowed, as k8s.Permissions has it.
type role interface {
	Denies(verb string, ref k8s.Ref) bool
	Known() bool
}

const (
	// roleLimit is how long nothing is decided because the role has not been read, which takes some milliseconds.
	roleLimit = time.Second
	// leftLimit is how long copies that are left are waited for where it cannot be known whether the role allows to list them.
	leftLimit = 10 * time.Second
)

// AwaitLeft returns the names in a namespace to which nothing is copied, as translations ask for them, once the copies are known that were left
// there: an object could be served with one that is another object's. It returns nil, which stands for the plain names, where the role does not
// allow to list Secrets. The error is that of ctx.
func AwaitLeft[D any](ctx context.Context, in stream.Resource[Left[D]], r role, namespace string) (envoy.CopyNames, error) {
	if namespace == "" {
		return nil, nil
	}
	for began := time.Now(); !r.Known() && time.Since(began) < roleLimit && ctx.Err() == nil; {
		sleep(ctx, pollInterval)
	}
	of := k8s.Ref{Resource: secretsResource}
	if r.Denies("list", of) || r.Denies("watch", of) {
		return nil, nil
	}
	opened, cancel := context.WithCancel(ctx)
	limit := time.AfterFunc(leftLimit, func() {
		if !r.Known() {
			cancel()
		}
	})
	defer limit.Stop()
	store, err := in.Store(opened)
	switch {
	case err == nil:
		return newLeft(store, namespace), nil
	case opened.Err() != nil && ctx.Err() == nil:
		return nil, nil
	}
	cancel()
	return nil, err
}

// left are the names in a namespace to which nothing is copied.
type left[D any] struct {
	store     *stream.Store[Left[D]]
	byOwner   *stream.Index[Left[D], Object]
	namespace string
}

func newLeft[D any](s *stream.Store[Left[D]], namespace string) left[D] {
	return left[D]{s, stream.NewIndex("owner", func(c *Left[D], add func(Object)) {
		if of, isCopy := c.Owner(); isCopy {
			add(of)
		}
	}), namespace}
}

// SecretCopy implements envoy.CopyNames.
func (l left[D]) SecretCopy(s envoy.Name) string { return l.nameOf(Object{Secret, slim.Key(s)}) }

// ConfigMapCopy implements envoy.CopyNames.
func (l left[D]) ConfigMapCopy(s envoy.Name) string { return l.nameOf(Object{ConfigMap, slim.Key(s)}) }

// nameOf is the name of the copy that was left of an object; without one it is the plain name, unless that is of another object's copy.
func (l left[D]) nameOf(o Object) string {
	plain, own := o.CopyName(), ""
	for c := range stream.ByIndex(l.store, l.byOwner, o) {
		if own == "" || c.Name == plain || own != plain && c.Name < own {
			own = c.Name
		}
	}
	if own != "" {
		return own
	}
	if has, exists := l.store.Get(slim.Key{Namespace: l.namespace, Name: plain}); exists {
		if _, isCopy := has.Owner(); isCopy {
			return plain + noCopy
		}
	}
	return plain
}
