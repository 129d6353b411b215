// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// LocalRig tests stream.Local.
func LocalRig() Rig {
	return Rig{Open: openLocal, Around: synctest.Test, Has: Faculties{Clock: true}}
}

const namespace = "things"

func openLocal(t *testing.T, _ string, opts ...stream.Option) *World {
	l, err := stream.NewLocal[Thing](opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.Synced()
	uids := map[string]slim.UID{}
	key := func(name string) slim.Key { return slim.Key{Namespace: namespace, Name: name} }
	return &World{
		Resource: l, Close: l.Close, Namespace: namespace,
		Put: func(name, value string) slim.Revision {
			if uids[name].IsZero() {
				uids[name] = slim.ParseUID(string(newUID(int64(l.State().Revision))))
			}
			thing := &Thing{}
			thing.Name, thing.Namespace, thing.UID = name, slim.MakeString(namespace), uids[name]
			thing.Data = slim.MakeLabels(map[string]string{"value": value})
			return l.Upsert(thing)
		},
		Delete: func(name string) {
			delete(uids, name)
			l.Delete(key(name))
		},
	}
}

// ServerRig tests stream.Stream against a Server: core objects or custom
// resources, with initial events or with lists.
func ServerRig(custom, watchList bool) Rig {
	return Rig{
		Open: func(t *testing.T, _ string, opts ...stream.Option) *World {
			server := NewServer()
			if !watchList {
				server.WithoutWatchList().WithPages(3)
			}
			return openServer(t, server, custom, opts)
		},
		Around: synctest.Test,
		Has:    Faculties{Server: true, Faults: true, Clock: true},
	}
}

func openServer(t *testing.T, server *Server, custom bool, opts []stream.Option) *World {
	gvr, declared := ConfigMaps, CoreThings()
	if custom {
		gvr, declared = Widgets, CustomThings()
	}
	server.Serve(gvr, map[bool]string{false: "ConfigMap", true: "Widget"}[custom], custom)
	source := stream.NewSource(server.Connect())
	open := func(kind stream.Kind[Thing]) *stream.Stream[Thing] {
		s, err := stream.New(source, kind, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := open(declared)
	w := &World{
		Resource: s, Close: s.Close, Namespace: namespace,
		Put: func(name, value string) slim.Revision {
			if custom {
				return server.Put(gvr, NewWidget(namespace, name, value).Object)
			}
			return server.Put(gvr, configMap(namespace, name, value))
		},
		Delete: func(name string) { server.Delete(gvr, slim.Key{Namespace: namespace, Name: name}) },
		Requests: func() Count {
			return countRequests(server.Requests())
		},
		Cut:      server.Cut,
		Restrict: func(labels string) stream.Resource[Thing] { return open(declared.MatchingLabels(labels)) },
		Expire: func() {
			server.Compact()
			server.Cut()
		},
		Hold: server.Hold,
		Busy: func() { EverySecond(t, func(context.Context) { server.WriteElsewhere() }) },
	}
	w.Away = func() func() {
		server.Fail(func(Request) *apierrors.StatusError {
			return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", gvr.GroupResource(), "", "away", 0, true)
		})
		server.Cut()
		return func() { server.Fail(nil) }
	}
	w.Missed = func(change func()) {
		back := w.Away()
		change()
		server.Compact()
		back()
	}
	return w
}

// EverySecond calls a function each second until the test ends.
func EverySecond(t *testing.T, do func(ctx context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				do(ctx)
			}
		}
	}()
}

func countRequests(requests []Request) (n Count) {
	for _, r := range requests {
		switch {
		case r.Initial:
			n.Initial++
		case r.Watch:
			n.Watches++
		case strings.Contains(first(r.Query["fieldSelector"]), "metadata.name="):
			n.Named++
		default:
			n.Lists++
		}
	}
	return n
}
