// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// serveControl serves the control API that control.Client speaks.
func (c *Cluster) serveControl(context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the control API: %w", err)
	}
	c.info.Control = "http://" + listener.Addr().String()
	c.server = &http.Server{Handler: c.authenticated(c.routes())}
	go func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("the control API ended", "error", err)
		}
	}()
	return nil
}

func (c *Cluster) authenticated(next http.Handler) http.Handler {
	want := []byte("Bearer " + c.token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "the token of "+control.InfoFile+" is missing", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Cluster) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { respond(w, r, h) })
	}
	handle("GET /info", func(*http.Request) (any, error) { return c.Info(), nil })
	handle("POST /shutdown", func(*http.Request) (any, error) {
		c.shutdownOnce.Do(func() { close(c.shutdown) })
		return nil, nil
	})
	handle("POST /kubeconfigs", asking(func(r *http.Request, ask control.Kubeconfig) (any, error) {
		path, err := c.kubeconfig(r.Context(), ask)
		return control.File{Path: path}, err
	}))
	c.routeServers(handle)
	c.routeProxies(handle)
	c.routeWebhooks(handle)
	return mux
}

func (c *Cluster) routeServers(handle func(string, func(*http.Request) (any, error))) {
	handle("POST /apiserver/{verb}", func(r *http.Request) (any, error) {
		if c.plane == nil {
			return nil, errors.New("this devcluster is an etcd without a control plane")
		}
		switch verb := r.PathValue("verb"); verb {
		case "stop":
			return nil, c.plane.StopAPIServer(r.Context())
		case "start":
			return nil, c.plane.StartAPIServer(r.Context())
		default:
			return nil, fmt.Errorf("unknown verb %q: use stop or start", verb)
		}
	})
	handle("POST /etcd/restore", asking(func(r *http.Request, ask control.File) (any, error) {
		return nil, c.etcd.Restore(r.Context(), ask.Path)
	}))
	handle("POST /etcd/{member}/{verb}", func(r *http.Request) (any, error) {
		member := r.PathValue("member")
		switch verb := r.PathValue("verb"); verb {
		case "pause":
			return nil, c.etcd.PauseMember(member)
		case "resume":
			return nil, c.etcd.ResumeMember(member)
		case "kill":
			return nil, c.etcd.KillMember(member)
		case "start":
			return nil, c.etcd.StartMember(member)
		default:
			return nil, fmt.Errorf("unknown verb %q: use pause, resume, kill or start", verb)
		}
	})
}

func (c *Cluster) routeProxies(handle func(string, func(*http.Request) (any, error))) {
	handle("GET /proxies", func(*http.Request) (any, error) { return c.proxies.list(), nil })
	handle("POST /proxies", asking(func(_ *http.Request, ask control.NewProxy) (any, error) {
		d, err := c.proxies.open(ask)
		if err != nil {
			return nil, err
		}
		return d.info(), nil
	}))
	handle("DELETE /proxies/{id}", func(r *http.Request) (any, error) {
		return nil, c.proxies.close(r.PathValue("id"))
	})
	proxy := func(pattern string, h func(*openProxy, *http.Request) (any, error)) {
		handle(pattern, func(r *http.Request) (any, error) {
			d, err := c.proxies.find(r.PathValue("id"))
			if err != nil {
				return nil, err
			}
			return h(d, r)
		})
	}
	proxy("GET /proxies/{id}", func(d *openProxy, _ *http.Request) (any, error) { return d.info(), nil })
	proxy("POST /proxies/{id}/heal", func(d *openProxy, _ *http.Request) (any, error) { return nil, d.Heal() })
	proxy("PUT /proxies/{id}/link", func(d *openProxy, r *http.Request) (any, error) {
		return asking(func(_ *http.Request, ask control.Link) (any, error) { return nil, d.SetLink(ask) })(r)
	})
	proxy("POST /proxies/{id}/cut", func(d *openProxy, r *http.Request) (any, error) {
		return asking(func(_ *http.Request, ask control.CutConnections) (any, error) {
			return control.Count{Count: d.Cut(ask)}, nil
		})(r)
	})
	proxy("POST /proxies/{id}/cut-watches", func(d *openProxy, r *http.Request) (any, error) {
		return asking(func(_ *http.Request, ask control.CutWatches) (any, error) {
			n, err := d.CutWatches(ask)
			return control.Count{Count: n}, err
		})(r)
	})
	proxy("GET /proxies/{id}/rules", func(d *openProxy, _ *http.Request) (any, error) { return d.Rules(), nil })
	proxy("POST /proxies/{id}/rules", func(d *openProxy, r *http.Request) (any, error) {
		return asking(func(_ *http.Request, ask control.Rule) (any, error) { return d.AddRule(ask) })(r)
	})
	proxy("DELETE /proxies/{id}/rules/{rule}", func(d *openProxy, r *http.Request) (any, error) {
		return nil, d.RemoveRule(r.PathValue("rule"))
	})
	proxy("GET /proxies/{id}/requests", func(d *openProxy, r *http.Request) (any, error) {
		after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse after: %w", err)
		}
		return d.Requests(after), nil
	})
}

// asking decodes the body for a handler. A field that is not known is an error:
// a fault that is misspelt must not pass for one that is set.
func asking[T any](h func(*http.Request, T) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var ask T
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&ask); err != nil {
			return nil, fmt.Errorf("parse the request: %w", err)
		}
		return h(r, ask)
	}
}

func respond(w http.ResponseWriter, r *http.Request, h func(*http.Request) (any, error)) {
	answer, err := h(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
}
