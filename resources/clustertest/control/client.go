// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Client drives one devcluster. It is safe for concurrent use.
type Client struct {
	base, token string
	http        *http.Client
}

// ReadInfo reads the Info of the devcluster that lives in dir. The error wraps
// fs.ErrNotExist as long as that is not ready.
func ReadInfo(dir string) (Info, error) {
	var info Info
	data, err := os.ReadFile(filepath.Join(dir, InfoFile))
	if err != nil {
		return info, fmt.Errorf("find the devcluster in %s: %w", dir, err)
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("parse %s: %w", filepath.Join(dir, InfoFile), err)
	}
	return info, nil
}

// NewClient returns a client for the devcluster that info describes. Close it
// to let go of its connections.
func NewClient(info Info) *Client {
	return &Client{
		base:  info.Control,
		token: info.Token,
		http:  &http.Client{Transport: &http.Transport{}},
	}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Info asks for the current Info; member PIDs change when members restart.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	return info, c.call(ctx, http.MethodGet, "/info", nil, &info)
}

// Shutdown asks the devcluster to stop. It returns before that is done.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/shutdown", nil, nil)
}

// Kubeconfig writes a kubeconfig file and returns its path.
func (c *Client) Kubeconfig(ctx context.Context, ask Kubeconfig) (string, error) {
	var file File
	err := c.call(ctx, http.MethodPost, "/kubeconfigs", ask, &file)
	return file.Path, err
}

// StopAPIServer stops the API server alone, in an orderly way, and returns when
// its port refuses connections. Its data stays.
func (c *Client) StopAPIServer(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/apiserver/stop", nil, nil)
}

// StartAPIServer starts a stopped API server on the same port and returns when
// it is ready.
func (c *Client) StartAPIServer(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/apiserver/start", nil, nil)
}

// PauseMember, ResumeMember, KillMember and StartMember send SIGSTOP, SIGCONT
// and SIGKILL to an etcd member, or start it again on its data and ports.
// StartMember returns when the process runs; it serves when there is a quorum.
func (c *Client) PauseMember(ctx context.Context, name string) error {
	return c.member(ctx, name, "pause")
}

// ResumeMember: see PauseMember.
func (c *Client) ResumeMember(ctx context.Context, name string) error {
	return c.member(ctx, name, "resume")
}

// KillMember: see PauseMember.
func (c *Client) KillMember(ctx context.Context, name string) error {
	return c.member(ctx, name, "kill")
}

// StartMember: see PauseMember.
func (c *Client) StartMember(ctx context.Context, name string) error {
	return c.member(ctx, name, "start")
}

// RestoreEtcd replaces the data of all etcd members by that of a snapshot, as etcdutl does: the members are killed and started
// again on their ports, as a new cluster. It returns when they have a quorum.
func (c *Client) RestoreEtcd(ctx context.Context, snapshot File) error {
	return c.call(ctx, http.MethodPost, "/etcd/restore", snapshot, nil)
}

func (c *Client) member(ctx context.Context, name, verb string) error {
	return c.call(ctx, http.MethodPost, "/etcd/"+url.PathEscape(name)+"/"+verb, nil, nil)
}

// Proxies lists all proxies in the order of their creation.
func (c *Client) Proxies(ctx context.Context) (proxies []Proxy, err error) {
	return proxies, c.call(ctx, http.MethodGet, "/proxies", nil, &proxies)
}

// NewProxy opens another front door.
func (c *Client) NewProxy(ctx context.Context, ask NewProxy) (proxy Proxy, err error) {
	return proxy, c.call(ctx, http.MethodPost, "/proxies", ask, &proxy)
}

// Proxy asks for one proxy's state.
func (c *Client) Proxy(ctx context.Context, id string) (proxy Proxy, err error) {
	return proxy, c.call(ctx, http.MethodGet, proxyPath(id), nil, &proxy)
}

// CloseProxy closes a proxy, its connections included.
func (c *Client) CloseProxy(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, proxyPath(id), nil, nil)
}

// SetLink replaces the state of a proxy's TCP side.
func (c *Client) SetLink(ctx context.Context, id string, link Link) error {
	return c.call(ctx, http.MethodPut, proxyPath(id, "link"), link, nil)
}

// Cut closes the open connections of a proxy and says how many there were.
func (c *Client) Cut(ctx context.Context, id string, how CutConnections) (int, error) {
	var n Count
	err := c.call(ctx, http.MethodPost, proxyPath(id, "cut"), how, &n)
	return n.Count, err
}

// CutWatches ends the matching open watches of a proxy and says how many there
// were.
func (c *Client) CutWatches(ctx context.Context, id string, which CutWatches) (int, error) {
	var n Count
	err := c.call(ctx, http.MethodPost, proxyPath(id, "cut-watches"), which, &n)
	return n.Count, err
}

// Heal removes every fault of a proxy: its rules and the state of its link.
func (c *Client) Heal(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, proxyPath(id, "heal"), nil, nil)
}

// Rules lists a proxy's rules with their hits, in order.
func (c *Client) Rules(ctx context.Context, id string) (rules []Rule, err error) {
	return rules, c.call(ctx, http.MethodGet, proxyPath(id, "rules"), nil, &rules)
}

// AddRule adds a rule behind those that exist and returns it with its ID.
func (c *Client) AddRule(ctx context.Context, id string, rule Rule) (added Rule, err error) {
	return added, c.call(ctx, http.MethodPost, proxyPath(id, "rules"), rule, &added)
}

// RemoveRule removes a rule; what it holds back is released.
func (c *Client) RemoveRule(ctx context.Context, id, rule string) error {
	return c.call(ctx, http.MethodDelete, proxyPath(id, "rules", rule), nil, nil)
}

// Requests lists what a proxy saw after the request numbered after, oldest
// first. The proxy remembers a bounded number.
func (c *Client) Requests(ctx context.Context, id string, after int64) (requests []Request, err error) {
	path := proxyPath(id, "requests") + "?after=" + strconv.FormatInt(after, 10)
	return requests, c.call(ctx, http.MethodGet, path, nil, &requests)
}

// Webhooks lists the webhooks of the API server with their hits, in order.
func (c *Client) Webhooks(ctx context.Context) (all []Admission, err error) {
	return all, c.call(ctx, http.MethodGet, "/webhooks", nil, &all)
}

// AddWebhook registers a webhook with the API server and returns it with its ID once the
// API server asks it.
func (c *Client) AddWebhook(ctx context.Context, ask Admission) (added Admission, err error) {
	return added, c.call(ctx, http.MethodPost, "/webhooks", ask, &added)
}

// RemoveWebhook removes a webhook; a request that it hangs goes on.
func (c *Client) RemoveWebhook(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/webhooks/"+url.PathEscape(id), nil, nil)
}

func proxyPath(parts ...string) string {
	var b strings.Builder
	b.WriteString("/proxies")
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

// call sends one request; ask and answer may be nil.
func (c *Client) call(ctx context.Context, method, path string, ask, answer any) error {
	var body io.Reader
	if ask != nil {
		data, err := json.Marshal(ask)
		if err != nil {
			return fmt.Errorf("devcluster %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("devcluster %s %s: %w", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("devcluster: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("devcluster %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("devcluster %s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(data))
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("devcluster %s %s: parse the answer: %w", method, path, err)
	}
	return nil
}
