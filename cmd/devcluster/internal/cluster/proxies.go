// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/skep-operator/skep/cmd/devcluster/internal/faultproxy"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// proxies are the front doors of a devcluster.
type proxies struct {
	log *slog.Logger
	// apiServer is nil without a control plane; etcd maps names of members to
	// their addresses.
	apiServer *faultproxy.Backend
	etcd      map[string]string
	// kubeconfig writes one for a proxy and returns its path.
	kubeconfig func(proxy *faultproxy.Proxy) (string, error)

	mu      sync.Mutex
	order   []*openProxy
	counter int
	closed  bool
}

// openProxy is a proxy and the kubeconfig that leads through it.
type openProxy struct {
	*faultproxy.Proxy
	kubeconfig string
}

func (d *openProxy) info() control.Proxy {
	info := d.Info()
	info.Kubeconfig = d.kubeconfig
	return info
}

func (p *proxies) open(ask control.NewProxy) (*openProxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("the devcluster is stopping")
	}
	if ask.ID == "" {
		p.counter++
		ask.ID = "proxy-" + strconv.Itoa(p.counter)
	}
	if ask.Backend == "" {
		ask.Backend = control.BackendAPIServer
	}
	if ask.ID != filepath.Base(ask.ID) || ask.ID == "." || ask.ID == ".." {
		return nil, fmt.Errorf("%q is no name for a proxy: a file is named after it", ask.ID)
	}
	if p.findLocked(ask.ID) != nil {
		return nil, fmt.Errorf("there is a proxy %q already", ask.ID)
	}
	opened, err := p.openLocked(ask)
	if err != nil {
		return nil, err
	}
	p.order = append(p.order, opened)
	return opened, nil
}

func (p *proxies) openLocked(ask control.NewProxy) (*openProxy, error) {
	cfg := faultproxy.Config{ID: ask.ID, Backend: ask.Backend, Seed: ask.Seed, Link: ask.Link, Log: p.log}
	if address, ok := p.etcd[ask.Backend]; ok {
		proxy, err := faultproxy.NewTCP(cfg, address)
		return &openProxy{Proxy: proxy}, err
	}
	if ask.Backend != control.BackendAPIServer || p.apiServer == nil {
		return nil, fmt.Errorf("there is no backend %q to stand before", ask.Backend)
	}
	proxy, err := faultproxy.NewHTTP(cfg, *p.apiServer)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := p.kubeconfig(proxy)
	if err != nil {
		proxy.Close()
		return nil, err
	}
	return &openProxy{proxy, kubeconfig}, nil
}

func (p *proxies) findLocked(id string) *openProxy {
	for _, d := range p.order {
		if d.ID() == id {
			return d
		}
	}
	return nil
}

func (p *proxies) find(id string) (*openProxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.findLocked(id); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("there is no proxy %q", id)
}

func (p *proxies) list() []control.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	infos := make([]control.Proxy, 0, len(p.order))
	for _, d := range p.order {
		infos = append(infos, d.info())
	}
	return infos
}

func (p *proxies) close(id string) error {
	d, err := p.find(id)
	if err != nil {
		return err
	}
	d.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(other *openProxy) bool { return other == d })
	return nil
}

func (p *proxies) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, d := range p.order {
		d.Close()
	}
	p.order = nil
}

// endpoint is the URL of an etcd member through its proxy.
func (p *proxies) endpoint(member control.Member) (string, error) {
	d, err := p.find(member.Name)
	if err != nil {
		return "", err
	}
	target, err := url.Parse(member.Endpoint)
	if err != nil {
		return "", fmt.Errorf("parse the endpoint of etcd member %s: %w", member.Name, err)
	}
	target.Host = d.Address()
	return target.String(), nil
}
