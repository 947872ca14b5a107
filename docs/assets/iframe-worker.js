// Browsers start no worker from a page on disk, so the search of such a page runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.tell(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => this.load(next)), Promise.resolve())
      this.load(url).then(() => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        Object.assign(script, { src: new URL(url, location.href).href, onload: resolve, onerror: reject })
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      if (!this.ready) return this.waiting.push(data)
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    tell(event) {
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
